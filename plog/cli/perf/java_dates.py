"""Time formatting with the patterns of Java's SimpleDateFormat, for ``--date-format``.

The supported letters stand for numbers, English names of days and months, AM and PM, and time
zones. Other letters are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

from plog.cli.options import UsageError

# Quoted text, a letter and its repetitions, or another character.
_PARTS: Final = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", re.DOTALL)

_NUMBERS: Final[dict[str, Callable[[datetime], int]]] = {
    "M": lambda t: t.month,
    "d": lambda t: t.day,
    "H": lambda t: t.hour,
    # In Java, k counts the hours of the day from 1 to 24, and K those of half a day from 0 to 11.
    "k": lambda t: t.hour or 24,
    "K": lambda t: t.hour % 12,
    "h": lambda t: t.hour % 12 or 12,
    "m": lambda t: t.minute,
    "s": lambda t: t.second,
    "S": lambda t: t.microsecond // 1000,  # In Java, always milliseconds, however many letters.
    "D": lambda t: t.timetuple().tm_yday,
}


def formatted(pattern: str, time: datetime) -> str:
    """Return a time in SimpleDateFormat's format. Raises UsageError for unsupported letters.

    >>> formatted("yyyy-MM-dd HH:mm:ss:SSS", datetime(2026, 3, 1, 9, 5, 7, 12000))
    '2026-03-01 09:05:07:012'
    """
    return "".join(_part(match[0], time) for match in _PARTS.finditer(pattern))


def _part(part: str, time: datetime) -> str:
    letter, size = part[0], len(part)
    # Two quotes are a literal quote, both within quoted text and alone.
    if letter == "'" and size > 1:
        return part[1:-1].replace("''", "'") or "'"
    if not (letter.isascii() and letter.isalpha()):
        return part
    if letter == "M" and size >= 3:
        return time.strftime("%b" if size == 3 else "%B")
    if letter in _NUMBERS:
        return str(_NUMBERS[letter](time)).zfill(size)
    match letter:
        case "y":
            return str(time.year)[-2:] if size == 2 else str(time.year).zfill(size)
        case "E":
            return time.strftime("%a" if size < 4 else "%A")
        case "a":
            return time.strftime("%p")
        case "Z":
            return time.astimezone().strftime("%z")
        case "z":
            return time.astimezone().strftime("%Z")
    raise UsageError(f"cannot format dates with '{part}': use only y, M, d, H, m, s, S, E, a and Z")
