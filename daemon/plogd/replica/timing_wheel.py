"""A timing wheel: the deadlines of many waits, which share a single timer.

Each bucket contains the waits whose deadlines are in the same tick. The timer is set for the first
bucket. A wait therefore costs a dictionary entry instead of a timer, and is due at most one tick
late.

Source: Kafka 3.9 TimingWheel. Invariant: while a bucket exists, a timer is set for it or for an
earlier one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import ceil
from typing import Generic, TypeVar

from plogd.ports import Clock, Timer, Timers

TICK_MS = 10
"""The time covered by one bucket."""

T = TypeVar("T")


class TimingWheel(Generic[T]):
    """Waits by their deadlines; a wait must be hashable by identity.

    Calls `on_due(wait)` when a deadline has passed, even if an earlier call in the same tick has
    removed that wait.
    """

    def __init__(self, clock: Clock, timers: Timers, on_due: Callable[[T], None]) -> None:
        self._clock = clock
        self._timers = timers
        self._on_due = on_due
        self._buckets: dict[int, dict[T, None]] = {}
        self._bucket_order: list[int] = []
        self._timer: Timer | None = None
        self._timer_bucket = 0

    def add(self, wait: T, timeout_ms: float) -> int:
        """Add a wait; return its bucket. If the timer cannot be set, the wait is not added."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        # Rounded up, because a wait may end late, but not before its deadline.
        bucket = ceil(deadline_ms / TICK_MS)
        if self._timer is None or bucket < self._timer_bucket:
            self._set_timer(min([bucket, *self._bucket_order[:1]]))
        waits = self._buckets.get(bucket)
        if waits is None:
            waits = self._buckets[bucket] = {}
            heapq.heappush(self._bucket_order, bucket)
        waits[wait] = None
        return bucket

    def remove(self, wait: T, bucket: int) -> None:
        """Remove a wait from the bucket that `add` returned; do nothing if it is not there."""
        # The bucket is kept until it is due, because its removal would require a heap search.
        waits = self._buckets.get(bucket)
        if waits is not None:
            waits.pop(wait, None)

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
            for wait in self._buckets.pop(heapq.heappop(self._bucket_order)):
                self._on_due(wait)
        if self._bucket_order:
            self._set_timer(self._bucket_order[0])
