"""plog/cli/console/line_reader.py: lines become keys, values and headers as in Kafka's tool."""

from __future__ import annotations

import pytest

from plog.cli.console.line_reader import Fields, LineError, LineFormat
from plog.cli.options import UsageError

ALL = {"parse.key": "true", "parse.headers": "TRUE", "null.marker": "NULL"}


@pytest.mark.parametrize(
    ("properties", "line", "expected"),
    [
        ({}, b"a\tb", Fields(None, b"a\tb", ())),
        ({}, b"", Fields(None, b"", ())),
        ({"parse.key": "true"}, b"k\tv\tw", Fields(b"k", b"v\tw", ())),
        ({"parse.key": "true", "key.separator": "=>"}, b"k=>v", Fields(b"k", b"v", ())),
        ({"parse.key": "yes"}, b"k\tv", Fields(None, b"k\tv", ())),
        (ALL, b"a:1,b:2\tk\tv", Fields(b"k", b"v", (("a", b"1"), ("b", b"2")))),
        (ALL, b"a:1,,\tk\tv", None),
        (ALL, b"a:1:2,\tk\tv", Fields(b"k", b"v", (("a", b"1:2"),))),
        (ALL, b"NULL\tNULL\tNULL", Fields(None, None, ())),
        (ALL, b"a:NULL\tNULL\tv", Fields(None, b"v", (("a", None),))),
        ({"null.marker": "-"}, b"-", Fields(None, None, ())),
        ({**ALL, "ignore.error": "true"}, b"alone", Fields(None, b"alone", ())),
        ({**ALL, "ignore.error": "true"}, b"h\tv", Fields(None, b"v", (("h", None),))),
        ({"parse.headers": "true", "headers.key.separator": "="}, b"a=\xff\t\xfe",
         Fields(None, b"\xfe", (("a", b"\xff"),))),
    ],
)  # fmt: skip
def test_a_line_is_read(properties: dict[str, str], line: bytes, expected: Fields | None) -> None:
    if expected is None:
        # Java drops empty parts at the end only.
        assert LineFormat.of(properties).parse(line, 1).headers == (("a", b"1"),)
    else:
        assert LineFormat.of(properties).parse(line, 1) == expected


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"no tab", "line 7 has no headers delimiter '\\t': 'no tab'"),
        (b"a:1\tno tab", "line 7 has no key separator '\\t': 'no tab'"),
        (b"a\tk\tv", "line 7 has a header without ':': 'a'"),
        (b"NULL:a\tk\tv", "line 7 has the null marker as a header name"),
        (b"x" * 100, "line 7 has no headers delimiter '\\t': '" + "x" * 60 + "...'"),
    ],
)
def test_a_line_that_cannot_be_read_is_told_with_its_number(line: bytes, told: str) -> None:
    with pytest.raises(LineError) as error:
        LineFormat.of(ALL).parse(line, 7)
    assert str(error.value) == told


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"key.divider": ":"}, "unknown reader property key.divider"),
        ({"key.separator": ""}, "key.separator is empty"),
        ({"null.marker": ","}, "null.marker and headers.separator"),
        ({"headers.separator": ":"}, "headers.separator and headers.key.separator"),
        ({"headers.delimiter": ","}, "headers.delimiter and headers.separator"),
    ],
)
def test_properties_that_cannot_be_are_refused(properties: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        LineFormat.of(properties)


def test_the_key_may_end_as_the_headers_do() -> None:
    assert not LineFormat.of(ALL).is_plain
    assert LineFormat.of({}).is_plain
