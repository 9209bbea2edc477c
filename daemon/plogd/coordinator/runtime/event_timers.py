"""Implement `ShardTimers`: an operation that is due runs as a write to its shard.

If the write fails, the operation is retried, unless its key has been rescheduled or cancelled. The
runtime cancels all timers before it unloads a shard.

Source: Kafka 4.0 CoordinatorRuntime.EventBasedCoordinatorTimer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plog.errors import KafkaError
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.ports import Cancelled, Later, Timer, Timers

RETRY_MS: Final = 500.0  # As in Kafka. A full disk may have room again by then.
# Retried even after an unexpected error: otherwise, a group could wait forever for a member whose
# session never expires.
BUG_RETRY_MS: Final = 10_000.0

Operation = Callable[[], Result[None]]


class EventTimers:
    """The timers of one shard. `write` runs an operation as a write to the shard."""

    def __init__(
        self,
        timers: Timers,
        write: Callable[[Operation], Later[None]],
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._timers = timers
        self._write = write
        self._on_bug = on_bug
        self._scheduled: dict[str, Timer] = {}
        self._runs: dict[str, int] = {}
        """Run number of each operation in progress, by key; `cancel` removes it."""
        self._count = 0
        self._stopped = False

    def __len__(self) -> int:
        return len(self._scheduled)

    def schedule(self, key: str, delay_ms: float, operation: Operation) -> None:
        """Run `operation` once after `delay_ms`; this replaces the key's previous operation."""
        if self._stopped:  # Callbacks of requests that fail during the unload may still call this.
            return
        self.cancel(key)
        timer = self._timers.call_later(max(0.0, delay_ms), lambda: self._run(key, operation))
        self._scheduled[key] = timer

    def cancel(self, key: str) -> None:
        """Cancel the operation for `key`, if there is one."""
        self._runs.pop(key, None)
        timer = self._scheduled.pop(key, None)
        if timer is not None:
            timer.cancel()

    def is_scheduled(self, key: str) -> bool:
        """Return whether an operation is scheduled for `key`."""
        return key in self._scheduled

    def stop(self) -> None:
        """Cancel all operations, and ignore any that are scheduled later."""
        self._stopped = True
        self._runs.clear()
        for timer in self._scheduled.values():
            timer.cancel()
        self._scheduled.clear()

    def _run(self, key: str, operation: Operation) -> None:
        del self._scheduled[key]
        self._count += 1
        # The number distinguishes this run from a later one with the same key: the operation itself
        # may schedule or cancel its key, and then it must not be retried.
        run = self._runs[key] = self._count

        def succeeded(_: None) -> None:
            if self._runs.get(key) == run:
                del self._runs[key]

        def failed(error: Exception) -> None:
            is_bug = not isinstance(error, KafkaError | Cancelled)
            if is_bug:
                self._on_bug(f"timer {key}", error)
            if self._runs.get(key) == run and not isinstance(error, Cancelled):
                self.schedule(key, BUG_RETRY_MS if is_bug else RETRY_MS, operation)
            succeeded(None)

        self._write(operation).then(succeeded, failed)
