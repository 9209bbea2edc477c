"""Times as options: ``--from`` and ``--to``, which limit a command to a range of times."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from typing import Final

# Milliseconds, except for a date such as 20260131.
_MILLISECONDS: Final = re.compile(r"(?!\d{8}$)\d+", re.ASCII)


def add_time_range_options(
    parser: argparse.ArgumentParser,
    start: str,
    end: str,
    defaults: tuple[str, str] | None = None,
) -> None:
    """Add the options; `start`, `end` and `defaults` are what the help says about them."""
    shown = [f" (default: {each})" for each in defaults] if defaults else ["", ""]
    for name, text, default in zip(("--from", "--to"), (start, end), shown, strict=True):
        parser.add_argument(
            name,
            dest=f"{name.lstrip('-')}_ms",
            type=time_ms,
            metavar="TIME",
            help=f"{text}, such as 2026-01-31 or 2026-01-31T12:00, in UTC unless it has an"
            f" offset{default}",
        )


def time_ms(text: str) -> int:
    """Parse milliseconds since 1970, or an ISO 8601 time or date, for use as the type of an option.

    A time without a zone is in UTC, and a date is its first moment in UTC.

    >>> time_ms("1970-01-01T00:00:01.5"), time_ms("1970-01-01T02:00:00+02:00"), time_ms("7")
    (1500, 0, 7)
    >>> time_ms("2026-01-01"), time_ms("20260101")
    (1767225600000, 1767225600000)
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither a time such as 2026-03-01T12:00:00 nor a number of ms since 1970"
        ) from None
    if time.tzinfo is None:
        # Otherwise, timestamp() would use the zone of this machine, and the same command would
        # select other records on another machine.
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)
