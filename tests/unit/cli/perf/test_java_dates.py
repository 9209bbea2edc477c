"""plog/cli/perf/java_dates.py: times in the patterns of SimpleDateFormat."""

from __future__ import annotations

from datetime import datetime

import pytest

from plog.cli.options import UsageError
from plog.cli.perf.java_dates import formatted

TIME = datetime(2026, 3, 1, 15, 4, 5, 678901)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2026-03-01 15:04:05:678"),
        ("yy/M/d h:m:s a", "26/3/1 3:4:5 PM"),
        ("EEE, d MMM yyyy", "Sun, 1 Mar 2026"),
        ("EEEE MMMM", "Sunday March"),
        ("yyyy-MM-dd'T'HH:mm", "2026-03-01T15:04"),
        ("''H 'o''clock'", "'15 o'clock"),
        ("KK kk DDD", "03 15 060"),
    ],
)
def test_time_is_formatted(pattern: str, expected: str) -> None:
    assert formatted(pattern, TIME) == expected


def test_unsupported_letter_is_an_error() -> None:
    with pytest.raises(UsageError, match="QQ"):
        formatted("yyyy QQ", TIME)
