"""Document settings in rows of Markdown tables and entries of example files.

Pure. The pages and files themselves are defined in plogd/config/docs.py for the broker and in
plog/client/settings/docs.py for clients.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from plog.properties import escape_value
from plog.settings import HOUR_MS, INT_MAX, LONG_MAX, Setting

Columns: TypeAlias = Mapping[str, Callable[[Setting], str]]
"""The columns of a table, by title: each function returns the text of a setting's cell."""


def print_one(
    printers: Mapping[str, Callable[[], str]], arguments: Sequence[str], *, program: str
) -> int:
    """Print the text that the command-line argument selects; return the exit code."""
    if len(arguments) != 1 or arguments[0] not in printers:
        sys.stderr.write(f"usage: python -m {program} {'|'.join(printers)}\n")
        return 2
    sys.stdout.write(printers[arguments[0]]())
    return 0


def by_group(rows: Iterable[Setting]) -> Iterator[tuple[str, list[Setting]]]:
    """Yield each section and its settings, in order."""
    group = ""
    members: list[Setting] = []
    for row in rows:
        # Settings are declared in the order of the docs, so a group only has to name its first
        # setting.
        if row.group:
            if members:
                yield group, members
            group, members = row.group, []
        members.append(row)
    if members:
        yield group, members


def table(columns: Columns, rows: Iterable[Setting]) -> str:
    """Return a Markdown table with one row per setting."""
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(cell(row) for cell in columns.values()) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)


def name_cell(row: Setting) -> str:
    """Return the setting's name and, on separate lines, its aliases."""
    return "<br>".join([f"`{row.name}`", *(f"or `{name}`" for name in row.aliases)])


def default_cell(row: Setting) -> str:
    """Return the default with its unit and, for a large number, the value in a larger unit."""
    text = row.format(row.default)
    if text is None:
        return "not set"
    # List entries have no white space, so insert a space after commas for line breaks.
    shown = f"`{text.replace(',', ', ')}`" if text else "empty"
    return f"{shown} {_readable(row)}".strip()


def allowed_cell(row: Setting) -> str:
    """Return the type and, unless all values are allowed, the allowed values."""
    return row.type.name.lower() + (f": {row.allowed}" if row.allowed else "")


def meaning_cell(row: Setting) -> str:
    """Return the description of the setting."""
    return row.doc


def _readable(row: Setting) -> str:
    """Return the unit and, for a large number, its value in a larger unit: ``ms (7 days)``."""
    value = row.default
    # A bool is also an int.
    if isinstance(value, bool) or not isinstance(value, int):
        return ""
    if value in (INT_MAX, LONG_MAX):
        return f"{row.unit} (maximum)".strip()
    units: tuple[tuple[int, str], ...] = ()
    if row.unit == "bytes":
        units = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
    elif row.unit == "ms":
        units = ((24 * HOUR_MS, "d"), (HOUR_MS, "h"), (60_000, "min"), (1_000, "s"))
    for size, name in units:
        # A rounded value would not be the default.
        if value >= size and value % size == 0:
            return f"{row.unit} ({value // size} {name})"
    return row.unit


def commented(row: Setting, fact: str = "") -> str:
    """Return an example file entry: a setting's description and default, commented out."""
    # Lines of 100 characters, of which two start the comment.
    # Words are not split at hyphens, because users search the file for values such as read-only.
    text = textwrap.wrap(row.doc.replace("`", ""), 98, break_on_hyphens=False)
    facts = [f"Allowed: {row.allowed}" if row.allowed else "", row.unit and f"Unit: {row.unit}"]
    facts.append(fact)
    text += [". ".join(fact for fact in facts if fact) + "."] if any(facts) else []
    value = row.format(row.default)
    shown = "" if value is None else escape_value(value)
    return "".join(f"# {line}\n" for line in text) + f"#{row.name}={shown}\n"
