"""The progress of jobs, as lines on standard output. Spark logs to standard error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]
"""A function that receives lines about the progress of a job."""


def print_progress(line: str) -> None:
    """Print a line immediately, even into a pipe, without characters that control a terminal."""
    # Names and keys come from records, so they may contain anything.
    print("".join(each if each.isprintable() else "?" for each in line), flush=True)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "record"), counted(1200, "file")
    ('1 record', '1,200 files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
