"""The windows that an audit compares."""

from __future__ import annotations

from plog.audit import AuditWindow
from plog.audit.bounds import AuditBounds

MINUTE_MS = 60_000


def window(minute: int, topic: str = "t") -> AuditWindow:
    return AuditWindow(topic, minute * MINUTE_MS, "p")


def test_range_contains_windows_by_their_start() -> None:
    bounds = AuditBounds(since_ms=2 * MINUTE_MS, before_ms=4 * MINUTE_MS, recent_ms=0)
    assert [minute for minute in range(6) if bounds.contains(window(minute))] == [2, 3]
    assert AuditBounds(recent_ms=0).contains(window(-1))


def test_window_is_recent_until_it_has_ended() -> None:
    bounds = AuditBounds(recent_ms=2 * MINUTE_MS)
    assert [bounds.is_recent(window(minute)) for minute in (0, 1, 2)] == [False, False, True]


def test_retention_is_that_of_the_topic_and_of_the_reports() -> None:
    bounds = AuditBounds(
        recent_ms=0,
        retained_ms={"t": 3 * MINUTE_MS, "u": MINUTE_MS},
        reports_retained_ms=2 * MINUTE_MS,
    )
    assert bounds.first_retained_ms("t") == 3 * MINUTE_MS
    assert bounds.first_retained_ms("u") == 2 * MINUTE_MS
    assert bounds.is_retained(window(2, "u"))
    assert not bounds.is_retained(window(2, "t"))
    # Records without a timestamp are in the window before 1970.
    assert AuditBounds(recent_ms=0).is_retained(window(-1))
