"""The progress of loading the logs at startup, and the request to stop loading.

`LoadWork` is the work of loading one log. The job counts its progress there, and ends between two
batches if the broker is stopping. `LoadProgress` adds up the work of all logs; log_loader.py
creates it, and supervision.py reads `amount` to report the progress.

Only the bytes of segments that recovery scans are counted. The job's thread and the reactor's
thread share a `LoadWork` without a lock: while the job runs, each attribute has a single writer.
"""

from __future__ import annotations

from typing import NamedTuple

from plog.errors import PlogError


class LoadingStopped(PlogError):
    """The broker is stopping, so a log was not loaded; the next startup loads it."""


class LoadAmount(NamedTuple):
    """The work of loading all logs, done and in total. `steps` increases with any progress."""

    logs: int = 0
    total_logs: int = 0
    scanned_bytes: int = 0
    total_bytes: int = 0
    steps: int = 0


class LoadWork:
    """The work of loading one log: `scanned_bytes` of `expected_bytes`."""

    __slots__ = ("expected_bytes", "is_stopped", "scanned_bytes", "steps")

    def __init__(self, expected_bytes: int = 0) -> None:
        self.expected_bytes = expected_bytes
        self.scanned_bytes = 0
        self.steps = 0
        self.is_stopped = False

    def step(self) -> None:
        """Count a small piece of work. Raises LoadingStopped if the broker is stopping."""
        self.steps += 1
        self.check()

    def check(self) -> None:
        """Raise LoadingStopped if the broker is stopping."""
        if self.is_stopped:
            raise LoadingStopped("cannot load a log: the broker is stopping")

    def scanned_to(self, nbytes: int) -> None:
        """Set the number of bytes scanned. Raises LoadingStopped if the broker is stopping."""
        self.scanned_bytes = nbytes
        self.step()


class LoadProgress:
    """The work of loading all logs of a broker. Called on the reactor's thread."""

    def __init__(self) -> None:
        self.is_stopped = False
        self._running: dict[LoadWork, None] = {}
        self._ended = LoadAmount()

    def begin(self, expected_bytes: int = 0) -> LoadWork:
        """Return a `LoadWork` for one log, of which about `expected_bytes` will be scanned."""
        work = LoadWork(expected_bytes)
        # The shutdown may have begun while this log was waiting for a thread.
        work.is_stopped = self.is_stopped
        self._running[work] = None
        return work

    def end(self, work: LoadWork) -> None:
        """Add the work of a log that was loaded, or failed to load, to the totals."""
        del self._running[work]
        # The log's total becomes the number of scanned bytes, even if more were expected.
        # Otherwise, the progress would never reach 100 %.
        logs, total_logs, scanned_bytes, total_bytes, steps = self._ended
        self._ended = LoadAmount(
            logs=logs + 1,
            total_logs=total_logs + 1,
            scanned_bytes=scanned_bytes + work.scanned_bytes,
            total_bytes=total_bytes + work.scanned_bytes,
            steps=steps + work.steps,
        )

    def stop(self) -> None:
        """Stop work in progress between two batches, and any work that begins later immediately."""
        self.is_stopped = True
        for work in self._running:
            work.is_stopped = True

    @property
    def amount(self) -> LoadAmount:
        """The work so far, including the logs that are being loaded."""
        logs, total_logs, scanned_bytes, total_bytes, steps = self._ended
        for work in self._running:  # Each step must be cheap: there may be 100,000 logs.
            scanned = work.scanned_bytes  # Read once, because the job's thread changes it.
            scanned_bytes += scanned
            total_bytes += max(work.expected_bytes, scanned)
            steps += work.steps
        return LoadAmount(logs, total_logs + len(self._running), scanned_bytes, total_bytes, steps)
