"""Run background tasks on all logs, and isolate each log's errors.

The tasks are retention, flushes, producer expiration, checkpoints, seals and deletions. If a task
fails in one log or log directory, the error is counted and reported at a limited rate, and the task
continues with the other logs. The failed log is retried in the task's next run, or after
`RETRY_MS`. A pass over all logs runs in slices, so that requests are served between slices.

Called on the reactor's thread. Source: docs/architecture.md, rule R15, for the effect of a failed
disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from plog.errors import PlogError
from plog.types import TopicPartition
from plogd.fair_queue import FairQueue
from plogd.log.io_errors import describe
from plogd.log.log import Log
from plogd.ports import Clock, Later, Ports, spawn

RETRY_MS = 60_000
"""The delay before a seal or a deletion is retried after an error."""

_SLICE_MS = 5.0
_SLICE_STEPS = 256
"""A pass lets other work run after this time, or after this number of logs or steps."""

# A full disk may fail the same task in thousands of logs.
_REPORT_INTERVAL_MS = 60_000.0
_REPORTS_PER_INTERVAL = 10
"""Maximum number of log lines per task and minute; other errors are only counted."""


class Housekeeping:
    """Runs passes over logs, and counts the errors in each background task.

    `operation_failed(log_dir, error)` decides what an OSError means for a log directory.
    """

    def __init__(self, ports: Ports, *, operation_failed: Callable[[str, OSError], None]) -> None:
        self._clock = ports.clock
        # Not the queue of large requests, so that tasks and requests do not wait for each other.
        self._queue = FairQueue(ports.timers)
        self._report = ports.report
        self._operation_failed = operation_failed
        self._errors: Counter[str] = Counter()
        self._limits: dict[str, _Limit] = {}

    @property
    def errors_by_task(self) -> Mapping[str, int]:
        """Number of errors by task."""
        return self._errors

    def each(self, task: str, logs: Iterable[Log], visit: Callable[[Log], object]) -> Later[None]:
        """Call `visit` with each log, in slices; an error affects only the log that raised it.

        If `visit` returns an iterator, the iterator is advanced step by step, and other work can
        run between two steps.
        """
        # A copy, because logs may be created and deleted between two slices.
        return spawn(self._each(task, list(logs), visit))

    async def _each(self, task: str, logs: list[Log], visit: Callable[[Log], object]) -> None:
        slice_ = _Slice(self._clock)
        for log in logs:
            if log.closed:  # The log was deleted after the pass began.
                continue
            try:
                work = visit(log)
                if isinstance(work, Iterator):
                    for _ in work:
                        if slice_.is_over():
                            await self._queue.turn()
            except Exception as error:
                self.log_failed(task, log, error)
            if slice_.is_over():
                await self._queue.turn()

    def log_failed(self, task: str, log: Log, error: Exception) -> None:
        """Count and report an `error` of `task` in `log`."""
        # A missing file is damage to one log. Any other OSError affects the whole disk, which has
        # failed or is full.
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            self._operation_failed(log.log_dir, error)
        self.failed(task, log.topic_partition, error)

    def failed(
        self,
        task: str,
        subject: str | TopicPartition,
        error: Exception,
        *,
        outcome: str = "it will be retried",
    ) -> None:
        """Count and report an `error` of `task` in `subject`, a partition or a directory."""
        # Counted even if it is not reported, so that the metric shows how many logs are affected.
        self._errors[task] += 1
        limit = self._limits.setdefault(task, _Limit())
        if not limit.admits(self._clock.monotonic_ms()):
            return
        self._report(
            "{task} of {subject} failed: {error}; {outcome}",
            task=task,
            subject=subject,
            error=_describe(error),
            outcome=outcome,
            topic_partition=subject if isinstance(subject, TopicPartition) else None,
            level="warn",
        )


class _Slice:
    """The part of a pass that runs without giving other work a turn."""

    __slots__ = ("_clock", "_steps", "_until_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps = 0
        self._until_ms = clock.monotonic_ms() + _SLICE_MS

    def is_over(self) -> bool:
        """Count a step and return whether the slice is over; if so, begin the next one."""
        self._steps += 1
        if self._steps < _SLICE_STEPS and self._clock.monotonic_ms() < self._until_ms:
            return False
        self._steps = 0
        self._until_ms = self._clock.monotonic_ms() + _SLICE_MS
        return True


class _Limit:
    """Limits the number of log lines for one task per interval."""

    __slots__ = ("_count", "_until_ms")

    def __init__(self) -> None:
        self._until_ms = 0.0
        self._count = 0

    def admits(self, now_ms: float) -> bool:
        if now_ms >= self._until_ms:
            self._until_ms, self._count = now_ms + _REPORT_INTERVAL_MS, 0
        self._count += 1
        return self._count <= _REPORTS_PER_INTERVAL


def _describe(error: Exception) -> str:
    """Return the error's text, with its type if the error is a bug."""
    if isinstance(error, OSError):
        return describe(error)
    return str(error) if isinstance(error, PlogError) else repr(error)
