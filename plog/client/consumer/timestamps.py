"""Convert the application's times to milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Time: TypeAlias = int | datetime
"""Milliseconds since 1970, or a datetime with a time zone."""

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def time_ms(time: Time) -> int:
    """Return `time` in ms since 1970. Raises ValueError, or TypeError if it is not a time.

    >>> time_ms(datetime(2026, 1, 1, tzinfo=UTC))
    1767225600000
    >>> time_ms(1_700_000_000_000)
    1700000000000
    """
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(
                f"{time!r} does not have a time zone: pass one, such as datetime.UTC, or use"
                " datetime.now().astimezone() for the local time zone"
            )
        time = (time - _1970) // _MILLISECOND
    elif not isinstance(time, int) or isinstance(time, bool):
        raise TypeError(f"{time!r} is not a time: pass milliseconds since 1970, or a datetime")
    if time < 0:
        raise ValueError(f"{time} is not a time in milliseconds since 1970: it is negative")
    return time
