"""Rows of a query as a table, CSV and JSON."""

from __future__ import annotations

import io

from plog.cli.spark.jobs.query_rows import PAGE, print_csv, print_json_lines, print_pages


def test_csv_has_a_header_and_quotes_cells() -> None:
    stream = io.StringIO()
    print_csv(["a", "b"], [["x,y", None], ['"', "1"]], stream)
    assert stream.getvalue() == 'a,b\n"x,y",\n"""",1\n'


def test_json_is_a_line_for_each_row() -> None:
    stream = io.StringIO()
    print_json_lines(["a"], [['{"a":1}'], ['{"a":null}']], stream)
    assert stream.getvalue() == '{"a":1}\n{"a":null}\n'


def test_table_is_aligned_and_counts_rows() -> None:
    stream = io.StringIO()
    print_pages(["PAGE", "n"], [["/home", "1200"], [None, "7"]], stream)
    assert stream.getvalue() == "PAGE      n\n/home  1200\n-         7\n(2 rows)\n"


def test_table_without_rows_shows_the_columns() -> None:
    stream = io.StringIO()
    print_pages(["a"], [], stream)
    assert stream.getvalue() == "a\n(0 rows)\n"


def test_long_table_is_printed_in_pages() -> None:
    stream = io.StringIO()
    print_pages(["a"], ([str(number)] for number in range(PAGE + 1)), stream)
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["  a", "  0"]
    assert lines[-4:] == ["", "   a", "1000", "(1,001 rows)"]
    # The second page is the last one only if it is not full.
    stream = io.StringIO()
    print_pages(["a"], ([str(number)] for number in range(2 * PAGE)), stream)
    assert stream.getvalue().splitlines()[-1] == "(2,000 rows)"
