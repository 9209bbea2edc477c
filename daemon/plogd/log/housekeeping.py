"""Background work over many logs or log directories, in which each fails on its own.

Retention, flushes, the expiration of producers, checkpoints, seals and deletions come here with
an error that nothing in their own rules covers. It is counted, reported at a bounded rate, and
keeps no other log from its turn; the task tries that log again at its next run, or after
`RETRY_MS`. A pass over all logs is sliced, so that requests are served in between.

Called on the reactor's thread. Source: docs/architecture.md, rule R15, for what a failed disk
costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from plog.errors import PlogError
from plogd.fair_queue import FairQueue
from plogd.log.io_errors import told
from plogd.log.log import Log
from plogd.ports import Clock, Later, Report, Timers, spawn

RETRY_MS = 60_000
"""How long a seal or a deletion waits after an error before it is tried again."""

_SLICE_MS = 5.0
_SLICE_STEPS = 256
"""A pass lets other work run after this time, or this many logs or steps."""

_REPORT_INTERVAL_MS = 60_000.0
_REPORTS_PER_INTERVAL = 10
"""Lines for each task and minute; beyond that, errors are only counted."""


class Housekeeping:
    """Runs passes over logs and collects the errors of background work, by task.

    `operation_failed(log_dir, error)` decides what an OSError means for a log directory.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        report: Report,
        operation_failed: Callable[[str, OSError], None],
    ) -> None:
        self._clock = clock
        self._queue = FairQueue(timers)
        self._report = report
        self._operation_failed = operation_failed
        self._errors: Counter[str] = Counter()
        self._limits: dict[str, _Limit] = {}

    @property
    def errors_by_task(self) -> Mapping[str, int]:
        """How many errors each task has met in one log or directory."""
        return self._errors

    def each(self, task: str, logs: Iterable[Log], visit: Callable[[Log], object]) -> Later[None]:
        """Call `visit` with each of `logs`, in slices; an error costs only the log it is about.

        Where it returns an iterator, its steps are the work, and others may run between them.
        """
        return spawn(self._each(task, list(logs), visit))

    async def _each(self, task: str, logs: list[Log], visit: Callable[[Log], object]) -> None:
        slice_ = _Slice(self._clock)
        for log in logs:
            if log.closed:  # It was deleted since the pass began.
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
        """`task` met `error` in `log`: count and report it."""
        # A missing file is damage to one log. Any other error is the disk's, or a full disk.
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            self._operation_failed(log.log_dir, error)
        self.failed(task, str(log.topic_partition), error)

    def failed(
        self, task: str, subject: str, error: Exception, *, outcome: str = "it is tried again"
    ) -> None:
        """`task` met `error` in `subject`, a log or a directory: count and report it."""
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
            level="warn",
        )


class _Slice:
    """How much of a pass has run in this turn."""

    __slots__ = ("_clock", "_steps", "_until_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps = 0
        self._until_ms = clock.monotonic_ms() + _SLICE_MS

    def is_over(self) -> bool:
        """Count a step; whether others shall run now. Then the next slice begins."""
        self._steps += 1
        if self._steps < _SLICE_STEPS and self._clock.monotonic_ms() < self._until_ms:
            return False
        self._steps = 0
        self._until_ms = self._clock.monotonic_ms() + _SLICE_MS
        return True


class _Limit:
    """How many lines one task has written in this interval."""

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
    """The error's text; its type as well if it is a bug."""
    if isinstance(error, OSError):
        return told(error)
    return str(error) if isinstance(error, PlogError) else repr(error)
