"""Points in time that an application names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from plog.client.consumer.timestamps import time_ms

NOON_MS = 1_767_268_800_000


@pytest.mark.parametrize(
    "noon",
    [
        NOON_MS,
        datetime(2026, 1, 1, 12, tzinfo=UTC),
        datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_a_time_has_one_meaning_however_it_is_given(noon: int | datetime) -> None:
    assert time_ms(noon) == NOON_MS


def test_parts_of_a_millisecond_are_left_out() -> None:
    assert time_ms(datetime(2026, 1, 1, 12, microsecond=1_999, tzinfo=UTC)) == NOON_MS + 1


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        (datetime(2026, 1, 1), ValueError, "says no time zone: give it one"),
        (-1, ValueError, "-1 is no time in milliseconds since 1970"),
        (datetime(1969, 1, 1, tzinfo=UTC), ValueError, "no time in milliseconds since 1970"),
        (1.7e12, TypeError, "is no time: give milliseconds since 1970, or a datetime"),
        ("2026-01-01", TypeError, "is no time"),
        (True, TypeError, "is no time"),
    ],
)
def test_what_is_no_time_says_so(wrong: object, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        time_ms(wrong)  # type: ignore[arg-type]
