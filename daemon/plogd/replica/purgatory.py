"""Where requests wait for something to happen to a partition, or for their time to run out.

An operation watches keys, or all of them. When a partition has changed, `check` is called with its
key, always from a `Turn` and never from inside an append or a move of the high watermark; the
operation then finds out whether it can be completed. Each operation ends exactly once: completed,
expired, or removed because its client has left. One that raises is a bug, reported and removed; the
others go on.

Deadlines sit on one wheel: a bucket for each tick, and a single timer for the first bucket, so that
a request costs a dictionary entry instead of a timer. An operation expires at most one tick late.

Source: Kafka 3.9 DelayedOperationPurgatory, TimingWheel.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from math import ceil
from typing import Protocol

from plogd.ports import Clock, Timer, Timers

TICK_MS = 10


class Operation(Protocol):
    """Something that waits. Hashable by identity."""

    def try_complete(self, key: Hashable) -> bool:
        """Complete if that is possible now that `key` has changed; whether it was."""
        ...

    def expire(self) -> None:
        """Its time has run out: end it with what there is."""
        ...


class Purgatory:
    """Operations by what they watch and by when they expire."""

    def __init__(
        self, clock: Clock, timers: Timers, *, on_bug: Callable[[str, Exception], None]
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._on_bug = on_bug
        self._watchers: dict[Hashable, dict[Operation, None]] = {}
        self._watch_all: dict[Operation, None] = {}
        """Those that are asked about every key."""
        self._places: dict[Operation, tuple[tuple[Hashable, ...], int]] = {}
        """The keys and the bucket of each operation."""
        self._buckets: dict[int, dict[Operation, None]] = {}
        self._bucket_order: list[int] = []
        self._timer: Timer | None = None
        self._timer_bucket = 0
        self.expired = 0
        """How many operations have run out of time."""

    def __len__(self) -> int:
        return len(self._places)

    def watch(self, operation: Operation, keys: Iterable[Hashable], timeout_ms: float) -> None:
        """Let `operation` wait for a check of one of `keys`, at most `timeout_ms`."""
        own_keys = tuple(dict.fromkeys(keys))  # A produce may name a partition twice.
        self._wait(operation, own_keys, timeout_ms)
        for key in own_keys:
            self._watchers.setdefault(key, {})[operation] = None

    def watch_all(self, operation: Operation, timeout_ms: float) -> None:
        """As `watch`, for an operation with too many keys: it is asked about every key checked."""
        self._wait(operation, (), timeout_ms)
        self._watch_all[operation] = None

    def _wait(self, operation: Operation, keys: tuple[Hashable, ...], timeout_ms: float) -> None:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        bucket = ceil(deadline_ms / TICK_MS)
        if self._timer is None or bucket < self._timer_bucket:
            self._set_timer(min([bucket, *self._bucket_order[:1]]))
        waiting = self._buckets.get(bucket)
        if waiting is None:
            waiting = self._buckets[bucket] = {}
            heapq.heappush(self._bucket_order, bucket)
        waiting[operation] = None
        self._places[operation] = (keys, bucket)

    def check(self, key: Hashable) -> None:
        """The partition `key` has changed: ask the operations that watch it."""
        watchers = self._watchers.get(key)
        if watchers is None and not self._watch_all:
            return
        for operation in [*(watchers or ()), *self._watch_all]:
            # Completing one may have ended another.
            if operation in self._places and self._try_complete(operation, key):
                self.remove(operation)

    def check_one(self, operation: Operation, keys: Iterable[Hashable]) -> bool:
        """Ask one operation about `keys`; whether it still waits."""
        for key in keys:
            if operation not in self._places:
                return False
            if self._try_complete(operation, key):
                self.remove(operation)
                return False
        return True

    def _try_complete(self, operation: Operation, key: Hashable) -> bool:
        try:
            return operation.try_complete(key)
        except Exception as error:
            self._on_bug("completing a request that waited", error)
            return True

    def remove(self, operation: Operation) -> None:
        """Let `operation` wait no longer; harmless if it does not."""
        place = self._places.pop(operation, None)
        if place is None:
            return
        keys, bucket = place
        self._watch_all.pop(operation, None)
        for key in keys:
            watchers = self._watchers[key]
            watchers.pop(operation, None)
            if not watchers:
                del self._watchers[key]
        # The bucket itself stays until its time comes: dropping it would mean a search in the heap.
        waiting = self._buckets.get(bucket)
        if waiting is not None:
            waiting.pop(operation, None)

    def _set_timer(self, first: int) -> None:
        """Look after the bucket `first`, and after those before it, when its time comes."""
        delay_ms = first * TICK_MS - self._clock.monotonic_ms()
        timer = self._timers.call_later(max(0.0, delay_ms), self._expire_due)
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_bucket = timer, first

    def _expire_due(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._bucket_order and self._bucket_order[0] * TICK_MS <= now_ms:
            for operation in self._buckets.pop(heapq.heappop(self._bucket_order)):
                if operation in self._places:
                    self.remove(operation)
                    self.expired += 1
                    self._expire(operation)
        if self._bucket_order:
            self._set_timer(self._bucket_order[0])

    def _expire(self, operation: Operation) -> None:
        try:
            operation.expire()
        except Exception as error:
            self._on_bug("ending a request that waited too long", error)
