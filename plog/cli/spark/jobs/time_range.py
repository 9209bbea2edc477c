"""The options ``--from`` and ``--to``, which limit a job to a range of times."""

from __future__ import annotations

import argparse
from datetime import date


def add_time_range_options(parser: argparse.ArgumentParser, *, end: str) -> None:
    """Add the options; `end` describes where a range ends without ``--to``."""
    for name, which, default in (("--from", "start", "the first record"), ("--to", "end", end)):
        parser.add_argument(
            name,
            dest=f"{name.lstrip('-')}_ms",
            type=time_ms,
            metavar="TIME",
            help=f"{which} of the range, such as 2026-01-31 or 2026-01-31T12:00, in UTC unless it"
            f" has an offset (default: {default})",
        )


def time_ms(text: str) -> int:
    """Return a time, or the start of a date, in ms since 1970, for use as the type of an option.

    >>> time_ms("2026-01-01"), time_ms("2026-01-01T01:00+01:00")
    (1767225600000, 1767225600000)
    """
    # Imported here, because no other option needs the tools for groups.
    from plog.cli.consumer_groups.offset_reset import datetime_ms

    try:
        date.fromisoformat(text)
    except ValueError:
        return datetime_ms(text)
    return datetime_ms(f"{text}T00:00")
