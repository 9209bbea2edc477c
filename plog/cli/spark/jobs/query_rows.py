"""Rows of a query as a table, CSV or JSON. The rows are read in pages, so there may be many."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Any, Final, TypeAlias

from plog.cli.output import Table, one_line, print_table, table_lines

PAGE: Final = 1000
"""Rows whose widths are determined together."""
# In a pipe or file, cells are not cut, because programs need the whole text.
_UNLIMITED: Final = 1 << 30
Row: TypeAlias = Sequence[str | None]


def print_csv(columns: Sequence[str], rows: Iterable[Row], stream: IO[str]) -> None:
    """Print a header and a line for each row; null is an empty cell."""
    # By default, the csv module ends lines with a carriage return and a line feed.
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def print_pages(columns: Sequence[str], rows: Iterable[Row], stream: IO[str]) -> None:
    """Print a table for every thousand rows; null is a dash.

    Line breaks and characters that control a terminal are replaced.
    """
    # Text from records must not control the terminal.
    iterator = (tuple(None if cell is None else one_line(cell) for cell in row) for row in rows)
    page, count = list(islice(iterator, PAGE)), 0
    # A result without rows still has a header.
    while page or not count:
        if count:
            print(file=stream)
        table = Table(columns, page)
        if stream.isatty():
            print_table(table, stream)
        else:
            for line in table_lines(table, _UNLIMITED):
                print(line, file=stream)
        count += len(page)
        if len(page) < PAGE:
            break
        page = list(islice(iterator, PAGE))
    print(f"({count:,} row{'' if count == 1 else 's'})", file=stream)


def print_json_lines(columns: Sequence[str], rows: Iterable[Row], stream: IO[str]) -> None:
    """Print the JSON object in the only column of each row."""
    for row in rows:
        print(row[0], file=stream)


Printer: TypeAlias = Callable[[Sequence[str], Iterable[Row], IO[str]], None]
PRINTERS: Final[dict[str, Printer]] = {
    "table": print_pages,
    "csv": print_csv,
    "json": print_json_lines,
}


def print_result(result: Any, output_format: str) -> None:
    """Print a DataFrame on standard output."""
    from plog.spark.jobs.sql.result_columns import as_json, as_text

    rows = as_json(result) if output_format == "json" else as_text(result)
    PRINTERS[output_format](result.columns, _read(rows), sys.stdout)
    sys.stdout.flush()


def _read(rows: Any) -> Iterator[Row]:
    # collect() would hold the whole result in the memory of the driver.
    for row in rows.toLocalIterator():
        yield tuple(row)
