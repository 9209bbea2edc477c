"""plog/cli/console/line_reader.py: keys, values and headers in lines, as in Kafka's tool."""

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
def test_line_is_parsed(properties: dict[str, str], line: bytes, expected: Fields | None) -> None:
    if expected is None:
        # Java drops only trailing empty parts.
        assert LineFormat.of(properties).parse(line, 1).headers == (("a", b"1"),)
    else:
        assert LineFormat.of(properties).parse(line, 1) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"no tab", "line 7 does not contain the headers delimiter '\\t': 'no tab'"),
        (b"a:1\tno tab", "line 7 does not contain the key separator '\\t': 'no tab'"),
        (b"a\tk\tv", "line 7 has a header without ':': 'a'"),
        (b"NULL:a\tk\tv", "line 7 uses the null marker as a header name"),
        (b"x" * 100, "line 7 does not contain the headers delimiter '\\t': '" + "x" * 60 + "...'"),
    ],
)
def test_invalid_line_is_an_error_with_its_number(line: bytes, message: str) -> None:
    with pytest.raises(LineError) as error:
        LineFormat.of(ALL).parse(line, 7)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"key.divider": ":"}, "unknown reader property key.divider"),
        ({"key.separator": ""}, "key.separator is empty"),
        ({"null.marker": ","}, "null.marker and headers.separator"),
        ({"headers.separator": ":"}, "headers.separator and headers.key.separator"),
        ({"headers.delimiter": ","}, "headers.delimiter and headers.separator"),
    ],
)
def test_invalid_properties_are_an_error(properties: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LineFormat.of(properties)


def test_key_separator_may_equal_headers_delimiter() -> None:
    assert not LineFormat.of(ALL).is_plain
    assert LineFormat.of({}).is_plain
