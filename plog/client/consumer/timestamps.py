"""Points in time as an application gives them, in milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Time: TypeAlias = int | datetime
"""Milliseconds since 1970, or a datetime that says in which time zone it is."""

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def time_ms(time: Time) -> int:
    """Raises ValueError for what is no such time, TypeError for what is none at all.

    >>> time_ms(datetime(2026, 1, 1, tzinfo=UTC))
    1767225600000
    >>> time_ms(1_700_000_000_000)
    1700000000000
    """
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(
                f"{time!r} says no time zone: give it one, such as datetime.UTC, or write"
                " datetime.now().astimezone() for the machine's own"
            )
        time = (time - _1970) // _MILLISECOND
    elif not isinstance(time, int) or isinstance(time, bool):
        raise TypeError(f"{time!r} is no time: give milliseconds since 1970, or a datetime")
    if time < 0:
        raise ValueError(f"{time} is no time in milliseconds since 1970")
    return time
