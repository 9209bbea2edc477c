"""plog/cli/console/deserializers.py: deserializers named by Java class or Python function."""

from __future__ import annotations

import math
import struct

import pytest

from plog.cli.console.deserializers import CannotDeserialize, find_deserializer
from plog.cli.options import UsageError


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("StringDeserializer", b"a\xff", "a\ufffd"),
        ("IntegerDeserializer", b"\xff\xff\xff\xff", "-1"),
        ("org.apache.kafka.common.serialization.LongDeserializer", b"\0" * 7 + b"\7", "7"),
        ("FloatDeserializer", struct.pack(">f", 0.1), "0.1"),
        ("FloatDeserializer", struct.pack(">f", 1e10), "1.0E10"),
        ("FloatDeserializer", b"\x7f\x7f\xff\xff", "3.4028235E38"),
        ("FloatDeserializer", b"\0\0\0\1", "1.4E-45"),
        ("FloatDeserializer", struct.pack(">f", -math.inf), "-Infinity"),
        ("FloatDeserializer", struct.pack(">f", math.nan), "NaN"),
        ("DoubleDeserializer", b"\x40\x04" + b"\0" * 6, "2.5"),
        ("DoubleDeserializer", struct.pack(">d", 1e10), "1.0E10"),
        ("BooleanDeserializer", b"\1", "true"),
        ("UUIDDeserializer", b"00000000-0000-0000-0000-000000000001",
         "00000000-0000-0000-0000-000000000001"),
        ("json:loads", b'{"a": [1]}', "{'a': [1]}"),
    ],
)  # fmt: skip
def test_bytes_are_deserialized(name: str, data: bytes, expected: str) -> None:
    deserialize = find_deserializer(name)
    assert deserialize is not None
    assert deserialize(data) == expected


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("IntegerDeserializer", b"123"),
        ("BooleanDeserializer", b"2"),
        ("UUIDDeserializer", b"x"),
        ("VoidDeserializer", b"x"),
        ("json:loads", b"{"),
    ],
)
def test_invalid_bytes_are_an_error(name: str, data: bytes) -> None:
    deserialize = find_deserializer(name)
    assert deserialize is not None
    with pytest.raises(CannotDeserialize):
        deserialize(data)


def test_byte_deserializer_returns_bytes_unchanged() -> None:
    assert find_deserializer(None) is None
    assert find_deserializer("ByteArrayDeserializer") is None


@pytest.mark.parametrize("name", ["Mine", "no_such_module:f", "json:no_such_function", ":x"])
def test_unknown_deserializer_is_an_error(name: str) -> None:
    with pytest.raises(UsageError, match="deserializer"):
        find_deserializer(name)
