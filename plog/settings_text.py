"""Tables of settings as text: rows of a Markdown table, entries of an example file.

Pure: rows in, text out. What pages and files there are, and what their heads say, is the business
of who owns the tables: plogd/config/docs.py for the broker, settings/docs.py for clients.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from plog.properties import escape_value
from plog.settings import HOUR_MS, INT_MAX, LONG_MAX, Setting

Columns: TypeAlias = Mapping[str, Callable[[Setting], str]]
"""The columns of a table by their titles: what each tells of a setting."""


def print_one(
    printers: Mapping[str, Callable[[], str]], arguments: Sequence[str], *, program: str
) -> int:
    """Print the text that the command line of `program` names; the exit status."""
    if len(arguments) != 1 or arguments[0] not in printers:
        sys.stderr.write(f"usage: python -m {program} {'|'.join(printers)}\n")
        return 2
    sys.stdout.write(printers[arguments[0]]())
    return 0


def by_group(rows: Iterable[Setting]) -> Iterator[tuple[str, list[Setting]]]:
    """The rows in the sections they are declared in, in order."""
    group = ""
    members: list[Setting] = []
    for row in rows:
        if row.group:
            if members:
                yield group, members
            group, members = row.group, []
        members.append(row)
    if members:
        yield group, members


def table(columns: Columns, rows: Iterable[Setting]) -> str:
    """A Markdown table with one line a setting."""
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(cell(row) for cell in columns.values()) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)


def name_cell(row: Setting) -> str:
    """The setting's name, and the other names it goes by."""
    return "<br>".join([f"`{row.name}`", *(f"or `{name}`" for name in row.aliases)])


def default_cell(row: Setting) -> str:
    """The default, with its unit and in a form that is easy to read."""
    text = row.format(row.default)
    if text is None:
        return "not set"
    # An entry of a list has no white space, so that a table may break behind its comma.
    shown = f"`{text.replace(',', ', ')}`" if text else "empty"
    return f"{shown} {_readable(row)}".strip()


def allowed_cell(row: Setting) -> str:
    """The type, and the allowed values if not all of it are."""
    return row.type.name.lower() + (f": {row.allowed}" if row.allowed else "")


def meaning_cell(row: Setting) -> str:
    """What the setting does."""
    return row.doc


def _readable(row: Setting) -> str:
    """The unit, and what a large number amounts to: ``(1 GiB)``, ``ms (7 days)``."""
    value = row.default
    if isinstance(value, bool) or not isinstance(value, int):
        return ""
    if value in (INT_MAX, LONG_MAX):
        return f"{row.unit} (the largest number)".strip()
    units: tuple[tuple[int, str], ...] = ()
    if row.unit == "bytes":
        units = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
    elif row.unit == "ms":
        units = ((24 * HOUR_MS, "d"), (HOUR_MS, "h"), (60_000, "min"), (1_000, "s"))
    for size, name in units:
        if value >= size and value % size == 0:
            return f"{row.unit} ({value // size} {name})"
    return row.unit


def commented(row: Setting, fact: str = "") -> str:
    """The setting at its default for an example file: a comment, with the meaning above it."""
    text = textwrap.wrap(row.doc.replace("`", ""), 98, break_on_hyphens=False)
    facts = [f"Allowed: {row.allowed}" if row.allowed else "", row.unit and f"Unit: {row.unit}"]
    facts.append(fact)
    text += [". ".join(fact for fact in facts if fact) + "."] if any(facts) else []
    value = row.format(row.default)
    shown = "" if value is None else escape_value(value)
    return "".join(f"# {line}\n" for line in text) + f"#{row.name}={shown}\n"
