"""How records get into the files of one log directory: at once, or by jobs while its disk is slow.

A write goes to the page cache and takes microseconds. Where it does not (dirty pages are at their
limit, the journal is full, the device hangs) it would hold up the reactor, and with it everybody.
So each log notes how long its writes take. One that took longer than 20 ms makes the directory a
slow one: from then on all its logs write by jobs on its lane (lane_writes.py), until none of those
took as long for 30 s.

Called on the reactor's thread, one object a directory, made by log_manager.py.
See docs/decisions/0007-slow-directories-write-on-their-lane.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from plogd.ports import Clock, Jobs, Later, Report

T = TypeVar("T")

SLOW_WRITE_MS = 20.0
"""A write that takes longer has waited for the disk."""
QUIET_MS = 30_000.0
"""How long no write may have been slow before the reactor writes again."""


class SlowDisk:
    """See the module's text. `is_slow` says how the next write is to be made."""

    __slots__ = (
        "_jobs",
        "_lane",
        "_path",
        "_quiet_at_ms",
        "_report",
        "is_slow",
        "monotonic_ms",
        "quiet_ms",
    )

    def __init__(self, path: str, lane: str, *, jobs: Jobs, clock: Clock, report: Report) -> None:
        self._path = path
        self._lane = lane
        self._jobs = jobs
        self._report = report
        self._quiet_at_ms = 0.0
        self.monotonic_ms = clock.monotonic_ms
        """The clock by which writes are timed."""
        self.quiet_ms = QUIET_MS
        self.is_slow = False

    def took(self, write_ms: float) -> None:
        """Note how long a write has taken."""
        if write_ms > SLOW_WRITE_MS:
            self._quiet_at_ms = self.monotonic_ms() + self.quiet_ms
            if not self.is_slow:
                self.is_slow = True
                self._report(
                    "a write to {log_dir} took {write_ms} ms: a thread writes there until the disk "
                    "is faster",
                    log_dir=self._path,
                    write_ms=round(write_ms),
                    level="warn",
                )
        elif self.is_slow and self.monotonic_ms() >= self._quiet_at_ms:
            self.is_slow = False
            self._report("writes to {log_dir} are fast again", log_dir=self._path)

    def submit(self, job: Callable[[], T]) -> Later[T]:
        """Run a job that writes, behind the directory's other jobs."""
        return self._jobs.submit(self._lane, job)
