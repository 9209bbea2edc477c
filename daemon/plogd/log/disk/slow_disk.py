"""Detect a slow disk, so that jobs write to it and the reactor does not block.

A write is a copy to the page cache, which takes microseconds. If too many pages are dirty, the
journal is full or the device hangs, the write blocks the reactor and thus all clients. Each write
is therefore measured. After a write of more than 20 ms, the log directory is considered slow: jobs
on its lane perform the writes of all its logs (slow_disk_writes.py), until no write has been slow
for some time. This time is 1 s at first, and doubles with each slow write, up to 30 s.

Jobs also write while many rolled segments wait for their seals. These jobs run behind the seals, so
segments are not rolled faster than they are sealed: an unsealed segment keeps files open.

Called on the reactor's thread; LogDirs has one object per directory. See
docs/decisions/0007-slow-directories-write-on-their-lane.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from plogd.ports import Later, Ports

T = TypeVar("T")

SLOW_WRITE_MS = 20.0
"""A longer write was probably blocked by the disk: a copy to the page cache takes 5 µs."""
# Short, because a write can be slow even if the disk is fast: if this were 30 s, one preemption of
# the broker per 30 s would double the CPU time of small produce requests (decision 0007).
FIRST_QUIET_MS = 1_000.0
"""The time without another slow write after which the reactor writes again."""
LONGEST_QUIET_MS = 30_000.0
"""The upper limit of this time, which doubles with each slow write."""
FORGET_MS = 300_000.0
"""After this time without slow writes, the next slow write is treated as the first."""
UNSEALED_MAX = 32
"""The number of rolled segments of a log directory that may wait for their seals before jobs write.
"""


class SlowDisk:
    """The speed of one log directory; `is_slow` is set while jobs must write."""

    __slots__ = (
        "_is_disk_slow",
        "_jobs",
        "_lane",
        "_path",
        "_quiet_at_ms",
        "_report",
        "_unsealed",
        "is_slow",
        "monotonic_ms",
        "quiet_ms",
    )

    def __init__(self, path: str, lane: str, ports: Ports) -> None:
        self._path = path
        self._lane = lane
        self._jobs = ports.jobs
        self._report = ports.report
        self._quiet_at_ms = 0.0
        self.monotonic_ms = ports.clock.monotonic_ms
        """The clock that measures writes."""
        self.quiet_ms = FIRST_QUIET_MS
        """How long writes must stay fast after the next slow write, before the reactor writes
        again."""
        self._is_disk_slow = False
        self._unsealed = 0
        self.is_slow = False

    def unsealed(self, change: int) -> None:
        """Record that `change` more rolled segments wait for their seals; fewer if negative."""
        self._unsealed += change
        self._decide()

    def _decide(self) -> None:
        self.is_slow = self._is_disk_slow or self._unsealed > UNSEALED_MAX

    def took(self, write_ms: float) -> None:
        """Record the duration of a write."""
        if write_ms > SLOW_WRITE_MS:
            now_ms = self.monotonic_ms()
            # Otherwise, rare preemptions over several days would lead to the longest time.
            if now_ms - self._quiet_at_ms > FORGET_MS:
                self.quiet_ms = FIRST_QUIET_MS
            self._quiet_at_ms = now_ms + self.quiet_ms
            self.quiet_ms = min(2 * self.quiet_ms, LONGEST_QUIET_MS)
            if not self._is_disk_slow:
                self._is_disk_slow = True
                self._decide()
                self._report(
                    "a write to {log_dir} took {write_ms} ms: using a thread for writes until the"
                    " disk is fast again",
                    log_dir=self._path,
                    write_ms=round(write_ms),
                    level="warn",
                )
        elif self._is_disk_slow and self.monotonic_ms() >= self._quiet_at_ms:
            self._is_disk_slow = False
            self._decide()
            self._report("writes to {log_dir} are fast again", log_dir=self._path)

    def submit(self, job: Callable[[], T]) -> Later[T]:
        """Run a job that writes, after the directory's earlier jobs."""
        # A lane is serial, so the batches of a log keep their order.
        return self._jobs.submit(self._lane, job)
