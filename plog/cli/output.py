"""Output of results: Kafka's plain columns for scripts, tables for people, JSON for programs.

On a terminal, a result is printed as a table that fits the width, with a bold header unless
``NO_COLOR`` is set. In a pipe or a file, the output is exactly the same as that of Kafka's tool,
because scripts parse it. With ``--json``, the output is always one JSON document.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Final, NamedTuple

_GAP: Final = "  "
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_MIN_WIDTH: Final = 4
"""Minimum width of a column that is cut, in characters."""


class Table(NamedTuple):
    """A result as rows; None is a cell without a value."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def show(
    plain: Callable[[], Iterable[str]],
    table: Callable[[], Iterable[Table]],
    data: Callable[[], object],
    *,
    as_json: bool,
    stream: IO[str] | None = None,
) -> None:
    """Print a result in the format for its destination: JSON, tables or plain lines.

    Only the function for the selected format is called.
    """
    # Not a default argument, which would keep the stream from before a redirection.
    stream = stream or sys.stdout
    if as_json:
        print_json(data(), stream)
    elif stream.isatty():
        for number, each in enumerate(table()):
            if number:
                print(file=stream)
            print_table(each, stream)
    else:
        for line in plain():
            print(line, file=stream)


def print_outcome(text: str, data: object, *, as_json: bool) -> None:
    """Print the outcome of a change: a sentence if `text` is not empty, or JSON."""
    if as_json:
        print_json(data)
    elif text:
        print(text)


def print_json(data: object, stream: IO[str] | None = None) -> None:
    """Print one JSON document."""
    import json  # Few commands need this slow import.

    print(json.dumps(data, indent=2, ensure_ascii=False), file=stream or sys.stdout)


def print_table(table: Table, stream: IO[str]) -> None:
    """Print a table on a terminal."""
    head, *lines = table_lines(table, terminal_width())
    # A dumb terminal, such as the shell of Emacs, shows escape sequences as text.
    if not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        head = f"{_BOLD}{head}{_PLAIN}"
    for line in (head, *lines):
        print(line, file=stream)


def terminal_width() -> int:
    """Return the number of characters in a line."""
    import shutil

    return shutil.get_terminal_size().columns


def table_lines(table: Table, width: int) -> Iterator[str]:
    """Yield the lines of a table: numbers are right-aligned, and long cells are cut.

    >>> list(table_lines(Table(("TOPIC", "LAG"), [("page-views", 7), ("a", None)]), 80))
    ['TOPIC       LAG', 'page-views    7', 'a             -']
    """
    cells = [["-" if cell is None else str(cell) for cell in row] for row in table.rows]
    numeric = [
        bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(table.columns))
    ]
    natural = [
        max(len(row[i]) for row in [list(table.columns), *cells]) for i in range(len(table.columns))
    ]
    widths = fitted(natural, width)
    for row in [list(table.columns), *cells]:
        parts = [
            _cut(cell, size).rjust(size) if right else _cut(cell, size).ljust(size)
            for cell, size, right in zip(row, widths, numeric, strict=True)
        ]
        yield _GAP.join(parts).rstrip()


def fitted(natural: Sequence[int], width: int) -> list[int]:
    """Return column widths that fit into a line; the widest columns shrink first.

    >>> fitted([10, 40, 5], 40)
    [10, 21, 5]
    """
    widths = list(natural)
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    # One character at a time, so that several wide columns end up with the same width.
    while excess > 0:
        widest = max(range(len(widths)), key=widths.__getitem__)
        # Narrower columns would be unreadable, so the lines become too long instead.
        if widths[widest] <= _MIN_WIDTH:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def kafka_columns(rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield rows, including the header, in columns as wide as their widest cell.

    >>> list(kafka_columns([("GROUP", "LAG"), ("analytics", 7)]))
    ['GROUP     LAG', 'analytics 7']
    """
    cells = [[str(cell) for cell in row] for row in rows]
    # As in Kafka's tools, one space separates the columns.
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield " ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()


@contextmanager
def progress(total: int, unit: str, *, scale: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a progress bar if standard error is a terminal; yield the bar's update function."""
    if not sys.stderr.isatty():
        # Logs of batch jobs must not contain a line for each update.
        yield lambda _: None
        return
    from tqdm import tqdm  # Few commands need this slow import.

    # As in the rest of plog, sizes in bytes have binary units; the divisor only matters with
    # `scale`.
    with tqdm(total=total, unit=unit, unit_scale=scale, unit_divisor=1024) as bar:

        def advance(done: int) -> None:
            bar.update(done)

        yield advance


def _is_number(cell: str) -> bool:
    # A missing value does not change the alignment of a column.
    return cell == "-" or cell.lstrip("-").isdigit()


def _cut(cell: str, size: int) -> str:
    return cell if len(cell) <= size else cell[: size - 1] + "…"


def one_line(text: str) -> str:
    """Return a text without line breaks and characters that control a terminal.

    >>> one_line("a\\n b\\x1b[31m")
    'a b?[31m'
    """
    # A record could otherwise change the colors, the title or the contents of the terminal.
    return "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))
