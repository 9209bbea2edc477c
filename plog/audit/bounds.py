"""`AuditBounds`: which windows an audit compares, and how sure it can be about each of them.

Some windows cannot be compared: retention has deleted some of their records or reports. Others are
recent: producers report records up to ten seconds after their acknowledgment, so records without a
report say nothing yet. Records that are missing are a finding in a recent window, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plog.audit.counts import WINDOW_MS, AuditWindow, window_start_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditBounds:
    """The range of windows of an audit; all times are in ms since 1970.

    >>> bounds = AuditBounds(recent_ms=600_000, retained_ms={"clicks": 120_000})
    >>> windows = [AuditWindow("clicks", start_ms, "web-1") for start_ms in (60_000, 600_000)]
    >>> [(bounds.is_retained(window), bounds.is_recent(window)) for window in windows]
    [(False, False), (True, True)]
    """

    since_ms: int | None = None
    """Only windows that start at or after this time."""
    before_ms: int | None = None
    """Only windows that start before this time."""
    recent_ms: int
    """Windows that end after this time are recent."""
    retained_ms: Mapping[str, int] = field(default_factory=dict)
    """By topic: windows that start before this time may have lost records to retention."""
    reports_retained_ms: int | None = None
    """Windows that start before this time may have lost reports to retention."""

    def contains(self, window: AuditWindow) -> bool:
        """Return whether a window is in the range of the audit."""
        # The start decides, so that audits of adjacent ranges compare each window once.
        after = self.since_ms is None or window.window_ms >= self.since_ms
        return after and (self.before_ms is None or window.window_ms < self.before_ms)

    def is_retained(self, window: AuditWindow) -> bool:
        """Return whether all records and reports of a window still exist."""
        # The start decides, because retention deletes the first records of a window first.
        return window.window_ms >= self.first_retained_ms(window.topic)

    def first_retained_ms(self, topic: str) -> int:
        """Return the time at which the comparable windows of a topic start."""
        # Timestamps are at least -1, so no window starts before -60 s.
        return max(self.retained_ms.get(topic, -WINDOW_MS), self.reports_retained_ms or -WINDOW_MS)

    def is_recent(self, window: AuditWindow) -> bool:
        """Return whether records of a window may not have been reported yet."""
        # The end decides, because producers send records of the window until then.
        return window.window_ms + WINDOW_MS > self.recent_ms


def next_window_ms(timestamp_ms: int) -> int:
    """Return the start of the first window after the one that contains a timestamp.

    >>> next_window_ms(60_000), next_window_ms(59_999)
    (120000, 60000)
    """
    return window_start_ms(timestamp_ms) + WINDOW_MS
