"""Parse the assignments of ``--add-config``: separated by commas, with brackets around lists."""

from __future__ import annotations

import re

from plog.cli.options import UsageError

# A comma outside brackets: no closing bracket follows it before the next opening one.
_COMMA = re.compile(r",(?=[^\]]*(?:\[|$))")


def parse_assignments(text: str) -> dict[str, str]:
    """Return the settings in ``a=1,b=[2,3]``. Raises UsageError.

    >>> parse_assignments("a=1, b=[2,3],c=")
    {'a': '1', 'b': '2,3', 'c': ''}
    """
    values: dict[str, str] = {}
    for part in _COMMA.split(text):
        name, separator, value = part.partition("=")
        if not separator or not name.strip():
            raise UsageError(f"--add-config: '{part.strip()}' is not name=value")
        values[name.strip()] = value.replace("[", "").replace("]", "").strip()
    return values
