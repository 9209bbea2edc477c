"""`OptionReader`: options of a query by name, parsed and checked, with all problems collected.

Spark passes option keys in lower case and values as text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from plog.settings import LONG_MAX

T = TypeVar("T")

# int() alone would also accept spaces and underscores. LONG_MAX has 19 digits.
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DURATION = re.compile(r"([0-9]{1,15}) *([a-z]*)", re.ASCII)
# The suffixes of Spark's JavaUtils.timeStringAs, except us, because the source measures in ms.
_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class OptionReader:
    """Reads options once, by their documented names; wrong values are added to `problems`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self._options = {key.lower(): value for key, value in options.items()}

    def has(self, name: str) -> bool:
        """Return whether the option is set."""
        return name.lower() in self._options

    def text(self, name: str) -> str | None:
        """Return the value, or None if the option is not set."""
        return self._options.get(name.lower())

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return the value as `parse` returns it, or None if it is not set or not valid."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            # Parsing goes on as if the option were not set, so that the error lists all problems.
            self.problems.append(f"{name}={text}: {error}")
            return None

    def integer(self, name: str, *, at_least: int = 1) -> int | None:
        """Return an integer option, or None."""
        return self.parsed(name, lambda text: parse_integer(text, at_least=at_least))

    def boolean(self, name: str, default: bool) -> bool:
        """Return an option that is ``true`` or ``false``."""
        found = self.parsed(name, parse_boolean)
        return default if found is None else found


def parse_integer(text: str, *, at_least: int) -> int:
    """Return a 64-bit integer. Raises ValueError.

    >>> parse_integer("12", at_least=1)
    12
    """
    if not _INTEGER.fullmatch(text):
        raise ValueError("not an integer")
    number = int(text)
    if not at_least <= number <= LONG_MAX:
        raise ValueError(f"must be {at_least} to {LONG_MAX}")
    return number


def parse_boolean(text: str) -> bool:
    """Return the value of ``true`` or ``false``, in any case. Raises ValueError."""
    if text.lower() not in ("true", "false"):
        raise ValueError("use true or false")
    return text.lower() == "true"


def parse_duration_ms(text: str) -> int:
    """Return a duration in Spark's notation in ms; without a unit, it is in ms. Raises ValueError.

    >>> parse_duration_ms("15m"), parse_duration_ms("200")
    (900000, 200)
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError("not a duration like 30s, 15m or 2h")
    return int(match[1]) * _UNITS_MS[match[2]]
