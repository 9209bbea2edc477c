"""Purgatory: delayed operations wait until a partition changes, or until their timeout.

An operation watches certain keys, or all keys. When a partition has changed, `check` is called with
the partition's key, always at the end of a `Turn` and never inside an append or an advance of the
high watermark. The operation then determines whether it can complete. Each operation ends exactly
once: it completes, expires, or is removed because its client has disconnected.

All deadlines share a timing wheel (timing_wheel.py), so operations expire at most one tick late.

Source: Kafka 3.9 DelayedOperationPurgatory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from plogd.ports import Clock, Timers
from plogd.replica.timing_wheel import TimingWheel


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
        self._on_bug = on_bug
        self._deadlines: TimingWheel[Operation] = TimingWheel(clock, timers, self._expire)
        self._watchers: dict[Hashable, dict[Operation, None]] = {}
        self._watch_all: dict[Operation, None] = {}
        """Operations that are checked for every key."""
        self._places: dict[Operation, tuple[tuple[Hashable, ...], int]] = {}
        """The keys of each operation, and its bucket in the timing wheel."""
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
        # First, so that the operation is not added if its timer cannot be set.
        bucket = self._deadlines.add(operation, timeout_ms)
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

    def check_all(self) -> None:
        """Try to complete all operations that watch certain keys."""
        for key in list(self._watchers):
            self.check(key)

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
        self._deadlines.remove(operation, bucket)

    def _expire(self, operation: Operation) -> None:
        # Expiring one operation may have removed another one of the same bucket.
        if operation not in self._places:
            return
        self.remove(operation)
        self.expired += 1
        try:
            operation.expire()
        except Exception as error:
            self._on_bug("expiring a delayed request", error)
