"""Conversion of times to milliseconds."""

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
def test_equivalent_times_have_the_same_value(noon: int | datetime) -> None:
    assert time_ms(noon) == NOON_MS


def test_fractions_of_a_millisecond_are_truncated() -> None:
    assert time_ms(datetime(2026, 1, 1, 12, microsecond=1_999, tzinfo=UTC)) == NOON_MS + 1


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        (datetime(2026, 1, 1), ValueError, "does not have a time zone: pass one"),
        (-1, ValueError, "-1 is not a time in milliseconds since 1970"),
        (datetime(1969, 1, 1, tzinfo=UTC), ValueError, "not a time in milliseconds since 1970"),
        (1.7e12, TypeError, "is not a time: pass milliseconds since 1970, or a datetime"),
        ("2026-01-01", TypeError, "is not a time"),
        (True, TypeError, "is not a time"),
    ],
)
def test_invalid_time_raises_error(wrong: object, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        time_ms(wrong)  # type: ignore[arg-type]
