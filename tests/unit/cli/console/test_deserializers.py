"""plog/cli/console/deserializers.py: deserializers named by Java class or Python function."""

from __future__ import annotations

import pytest

from plog.cli.console.deserializers import CannotDeserialize, find_deserializer
from plog.cli.options import UsageError


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("StringDeserializer", b"a\xff", "a\ufffd"),
        ("IntegerDeserializer", b"\xff\xff\xff\xff", "-1"),
        ("org.apache.kafka.common.serialization.LongDeserializer", b"\0" * 7 + b"\7", "7"),
        ("DoubleDeserializer", b"\x40\x04" + b"\0" * 6, "2.5"),
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
