"""`ShardTimers` over the timers of the process: what is due runs as a write of its shard.

An operation whose write fails runs again after half a second, unless its key has been given
something else to do; the disk may have room again by then. After an unexpected error it runs again
after ten seconds: a session that never ended would keep its group waiting. The runtime cancels all
of them before it unloads a shard. Source: Kafka 4.0 CoordinatorRuntime.EventBasedCoordinatorTimer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plog.errors import KafkaError
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.ports import Cancelled, Later, Timer, Timers

RETRY_MS: Final = 500.0
BUG_RETRY_MS: Final = 10_000.0

Operation = Callable[[], Result[None]]


class EventTimers:
    """See the module's text. `write` runs an operation as a write of the shard."""

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
        """By key, the number of the last call of `schedule` or `cancel`, while it is running."""
        self._count = 0
        self._stopped = False

    def __len__(self) -> int:
        return len(self._scheduled)

    def schedule(self, key: str, delay_ms: float, operation: Operation) -> None:
        """Run `operation` once, `delay_ms` from now, instead of what `key` had before."""
        if self._stopped:
            return
        self.cancel(key)
        timer = self._timers.call_later(max(0.0, delay_ms), lambda: self._run(key, operation))
        self._scheduled[key] = timer

    def cancel(self, key: str) -> None:
        """Do not run what `key` has; harmless when it has nothing."""
        self._runs.pop(key, None)
        timer = self._scheduled.pop(key, None)
        if timer is not None:
            timer.cancel()

    def is_scheduled(self, key: str) -> bool:
        """Whether `key` has an operation that is still to run."""
        return key in self._scheduled

    def stop(self) -> None:
        """Cancel everything, for good."""
        self._stopped = True
        self._runs.clear()
        for timer in self._scheduled.values():
            timer.cancel()
        self._scheduled.clear()

    def _run(self, key: str, operation: Operation) -> None:
        del self._scheduled[key]
        self._count += 1
        run = self._runs[key] = self._count

        def succeeded(_: None) -> None:
            if self._runs.get(key) == run:
                del self._runs[key]

        def failed(error: Exception) -> None:
            is_bug = not isinstance(error, KafkaError | Cancelled)
            if is_bug:
                self._on_bug(f"the timer {key}", error)
            if self._runs.get(key) == run and not isinstance(error, Cancelled):
                self.schedule(key, BUG_RETRY_MS if is_bug else RETRY_MS, operation)
            succeeded(None)

        self._write(operation).then(succeeded, failed)
