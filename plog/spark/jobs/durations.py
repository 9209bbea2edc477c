"""Durations in the options of jobs, which are Spark's, such as ``5 minutes``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# Spark's windows reject months, whose length varies.
_DURATION: Final = re.compile(r"[1-9]\d* (millisecond|second|minute|hour|day)s?")


def duration_problems(durations: Mapping[str, str | None]) -> list[str]:
    """Return a message for each wrong duration, by the name of its option; None is accepted.

    >>> duration_problems({"window": "5 minutes", "slide": None})
    []
    """
    return [
        f"cannot use the {name} {text!r}: write a duration such as '5 minutes'"
        for name, text in durations.items()
        if text is not None and not _DURATION.fullmatch(text)
    ]
