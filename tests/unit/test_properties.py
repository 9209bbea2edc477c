"""plog/properties.py: Java's .properties format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.properties import PropertiesError, escape_value, parse_properties


def pairs(text: str) -> list[tuple[str, str]]:
    return [(a.key, a.value) for a in parse_properties(text)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a=1", ("a", "1")),
        ("a = 1", ("a", "1")),
        ("  a\t:\t1", ("a", "1")),
        ("a 1", ("a", "1")),
        ("a", ("a", "")),
        ("a=", ("a", "")),
        ("a==b", ("a", "=b")),
        ("a = b = c", ("a", "b = c")),
        ("a=1  ", ("a", "1  ")),
        (r"a\=b\:c\ d=1", ("a=b:c d", "1")),
        (r"a=\u00e9\t\q", ("a", "é\tq")),
        (r"a=C:\\logs", ("a", r"C:\logs")),
        ("a=1 # no comment", ("a", "1 # no comment")),
    ],
)
def test_assignment_is_parsed(line: str, expected: tuple[str, str]) -> None:
    assert pairs(line) == [expected]


def test_comments_and_blank_lines_are_skipped() -> None:
    assert pairs("# a=1\n  ! b=2\n\n \t\nc=3") == [("c", "3")]


def test_odd_number_of_backslashes_continues_line() -> None:
    assert pairs("a=1,\\\n   2,\\\r\n\t3\nb=x\\\\\nc=y") == [
        ("a", "1,2,3"),
        ("b", "x\\"),
        ("c", "y"),
    ]


def test_comment_is_never_continued() -> None:
    assert pairs("# a \\\nb=1") == [("b", "1")]


def test_comment_sign_after_continuation_is_content() -> None:
    assert pairs("a=1\\\n#2") == [("a", "1#2")]


def test_backslash_at_end_of_file_is_ignored() -> None:
    assert pairs("a=1\\") == [("a", "1")]


def test_repeated_keys_are_returned_in_order() -> None:
    assert pairs("a=1\na=2") == [("a", "1"), ("a", "2")]


def test_line_number_is_that_of_first_natural_line() -> None:
    assignments = parse_properties("# head\na=1,\\\n  2\r\n\rb=3")
    assert [(a.key, a.line) for a in assignments] == [("a", 2), ("b", 5)]


@pytest.mark.parametrize("escape", [r"\u12", r"\uzzzz", r"\u"])
def test_error_of_invalid_unicode_escape_has_line_number(escape: str) -> None:
    with pytest.raises(PropertiesError) as caught:
        parse_properties(f"\na={escape}")
    assert caught.value.line == 2


@given(st.text())
def test_escaped_value_survives_round_trip(value: str) -> None:
    assert pairs(f"key={escape_value(value)}") == [("key", value)]


@given(st.text().filter(lambda text: "\\u" not in text))
def test_any_text_without_unicode_escape_is_parsed(text: str) -> None:
    assert all(a.line >= 1 for a in parse_properties(text))
