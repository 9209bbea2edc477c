"""`WriteRefusals`: the rejected writes, for the log and for the status line.

A full disk rejects every append, so only one rejection per log directory and minute is logged.
"""

from __future__ import annotations

from plogd.log.io_errors import describe
from plogd.ports import Clock, Report

_INTERVAL_MS = 60_000.0
"""Minimum interval between two reports for the same reason."""


class WriteRefusals:
    """The rejected writes of all log directories."""

    def __init__(self, clock: Clock, report: Report) -> None:
        self._clock = clock
        self._report = report
        self._quiet_until_ms: dict[str, float] = {}
        self.last: dict[str, tuple[float, str]] = {}
        """The time (monotonic ms) and cause of the last rejected write, by log directory."""

    def note(self, log_dir: str, error: OSError) -> bool:
        """Record a write that was rejected because the disk is full; return whether to report it.

        The first of a minute is reported.
        """
        self.last[log_dir] = (self._clock.monotonic_ms(), error.strerror or str(error))
        is_due = self.may_report(log_dir)
        if is_due:
            text = "writes to {log_dir} are rejected: {error}"
            self._report(text, log_dir=log_dir, error=describe(error), level="error")
        return is_due

    def may_report(self, what: str) -> bool:
        """Return whether a report about `what` is due, and assume that the caller makes it."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._quiet_until_ms.get(what, 0.0):
            return False
        self._quiet_until_ms[what] = now_ms + _INTERVAL_MS
        return True
