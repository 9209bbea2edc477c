"""Purgatory: delayed operations wait until a partition changes, or until their timeout.

An operation watches certain keys, or all keys. When a partition has changed, `check` is called with
the partition's key, always at the end of a `Turn` and never inside an append or an advance of the
high watermark. The operation then determines whether it can complete. Each operation ends exactly
once: it completes, expires, or is removed because its client has disconnected.

All deadlines share one timer wheel, with one bucket per tick and a single timer for the first
bucket. An operation therefore costs a dictionary entry instead of a timer. Operations expire at
most one tick late.

Source: Kafka 3.9 DelayedOperationPurgatory, TimingWheel.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from math import ceil
from typing import Protocol

from plogd.ports import Clock, Timer, Timers

TICK_MS = 10
"""The time covered by one bucket of the timer wheel."""


class Operation(Protocol):
    """A delayed operation. Hashable by identity."""

    def try_complete(self, key: Hashable) -> bool:
        """Complete if the change to `key` makes this possible; return whether it did."""
        ...

    def expire(self) -> None:
        """Complete with the results that are available at the timeout."""
        ...


class Purgatory:
    """Delayed operations, by the keys they watch and by deadline."""

    def __init__(
        self, clock: Clock, timers: Timers, *, on_bug: Callable[[str, Exception], None]
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._on_bug = on_bug
        self._watchers: dict[Hashable, dict[Operation, None]] = {}
        self._watch_all: dict[Operation, None] = {}
        """Operations that are checked for every key."""
        self._places: dict[Operation, tuple[tuple[Hashable, ...], int]] = {}
        """The keys and the bucket of each operation."""
        self._buckets: dict[int, dict[Operation, None]] = {}
        self._bucket_order: list[int] = []
        self._timer: Timer | None = None
        self._timer_bucket = 0
        self.expired = 0
        """Number of operations that timed out."""

    def __len__(self) -> int:
        return len(self._places)

    def watch(self, operation: Operation, keys: Iterable[Hashable], timeout_ms: float) -> None:
        """Add `operation`, which watches `keys` until it completes or expires."""
        # Without duplicates, because a produce request can contain a partition twice.
        own_keys = tuple(dict.fromkeys(keys))
        self._wait(operation, own_keys, timeout_ms)
        for key in own_keys:
            self._watchers.setdefault(key, {})[operation] = None

    def watch_all(self, operation: Operation, timeout_ms: float) -> None:
        """Add an operation that has too many keys for `watch`, and is checked for every key."""
        self._wait(operation, (), timeout_ms)
        self._watch_all[operation] = None

    def _wait(self, operation: Operation, keys: tuple[Hashable, ...], timeout_ms: float) -> None:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        # Rounded up, because an operation may expire late, but not before its timeout.
        bucket = ceil(deadline_ms / TICK_MS)
        # The timer is set first, so that the operation is not added if this fails.
        if self._timer is None or bucket < self._timer_bucket:
            self._set_timer(min([bucket, *self._bucket_order[:1]]))
        waiting = self._buckets.get(bucket)
        if waiting is None:
            waiting = self._buckets[bucket] = {}
            heapq.heappush(self._bucket_order, bucket)
        waiting[operation] = None
        self._places[operation] = (keys, bucket)

    def check(self, key: Hashable) -> None:
        """Try to complete the operations that watch `key`, because that partition has changed."""
        watchers = self._watchers.get(key)
        if watchers is None and not self._watch_all:
            return
        for operation in [*(watchers or ()), *self._watch_all]:
            # Completing one operation may remove another.
            if operation in self._places and self._try_complete(operation, key):
                self.remove(operation)

    def check_one(self, operation: Operation, keys: Iterable[Hashable]) -> bool:
        """Check one operation for `keys`; return whether it is still waiting."""
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
            self._on_bug("completing a delayed request", error)
            return True  # Removed, so that the bug is not repeated at every check.

    def remove(self, operation: Operation) -> None:
        """Remove `operation`; do nothing if it is not waiting."""
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
        # The bucket is kept until it is due, because its removal would require a heap search.
        waiting = self._buckets.get(bucket)
        if waiting is not None:
            waiting.pop(operation, None)

    def _set_timer(self, first: int) -> None:
        """Set the timer for the time at which the bucket `first` is due."""
        delay_ms = first * TICK_MS - self._clock.monotonic_ms()
        timer = self._timers.call_later(max(0.0, delay_ms), self._expire_due)
        if self._timer is not None:
            # Only now, so that the old timer stays in force if the new one cannot be set.
            self._timer.cancel()
        self._timer, self._timer_bucket = timer, first

    def _expire_due(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._bucket_order and self._bucket_order[0] * TICK_MS <= now_ms:
            for operation in self._buckets.pop(heapq.heappop(self._bucket_order)):
                # Expiring one operation may remove another, which is still in this list.
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
            self._on_bug("expiring a delayed request", error)
