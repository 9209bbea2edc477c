"""Durations in the format of Java's `Duration.parse`, such as ``P1DT2H30M``.

Settings and command lines use this format. As in Java, days are the longest unit, because months
vary in length.
"""

from __future__ import annotations

import re

_DURATION = re.compile(
    r"(?P<sign>[+-])?P(?:(?P<days>[+-]?[0-9]+)D)?"
    r"(?P<time>T(?:(?P<hours>[+-]?[0-9]+)H)?(?:(?P<minutes>[+-]?[0-9]+)M)?"
    r"(?:(?P<seconds>[+-]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def duration_ms(text: str) -> int:
    """Return the duration in whole milliseconds. Raises ValueError.

    >>> duration_ms("PT1H30M"), duration_ms("P7D"), duration_ms("pt0.25s"), duration_ms("-PT1S")
    (5400000, 604800000, 250, -1000)
    """
    match = _DURATION.fullmatch(text.strip())
    given = match.groupdict() if match else {}
    # As in Java, at least one unit is required, and a T must be followed by a unit.
    if not any(given.get(unit) for unit in _UNITS_MS) or (given.get("time") or "").upper() == "T":
        raise ValueError("not a duration like PT1H30M or P7D")
    total_ms = sum(int(given[unit] or 0) * size_ms for unit, size_ms in _UNITS_MS.items())
    # As in Java, the fraction has the sign of the seconds, even for "-0.5".
    fraction_ms = int((given["fraction"] or "").ljust(3, "0")[:3])
    total_ms += -fraction_ms if (given["seconds"] or "").startswith("-") else fraction_ms
    return -total_ms if given["sign"] == "-" else total_ms
