"""Frames that are valid until a limit is reached: tags, nulls and nesting."""

from __future__ import annotations

import struct

import pytest

from plog.wire.primitives import encode_varint
from tests.attack.conftest import Attack
from tests.attack.frames import response_size
from tests.attack.target import Target

_METADATA, _FIND_COORDINATOR, _CREATE_TOPICS = 3, 10, 19
_MIB = 1 << 20


def _frame(api_key: int, version: int, body: bytes, header_tags: bytes = b"\0") -> bytes:
    """Return a request of a flexible version."""
    head = struct.pack(">hhih", api_key, version, 1, -1) + header_tags
    return struct.pack(">i", len(head) + len(body)) + head + body


def _tags(count: int, size: int) -> bytes:
    """Return unknown tagged fields."""
    fields = (encode_varint(100 + tag) + encode_varint(size) + bytes(size) for tag in range(count))
    return encode_varint(count) + b"".join(fields)


_NO_TOPICS = b"\1\1\0"
_FRAMES = {
    "one-tag-of-60-mb": _frame(_METADATA, 9, _NO_TOPICS + _tags(1, 60 * _MIB)),
    "40000-tags": _frame(_METADATA, 9, _NO_TOPICS + _tags(40_000, 1)),
    "2000000-tags": _frame(_METADATA, 9, _NO_TOPICS + _tags(2_000_000, 0)),
    "40000-tags-in-the-header": _frame(_METADATA, 9, _NO_TOPICS + b"\0", _tags(40_000, 1)),
    "2000000-tags-in-the-header": _frame(_METADATA, 9, _NO_TOPICS + b"\0", _tags(2_000_000, 0)),
    "null-array": _frame(_METADATA, 9, b"\0\1\0\0"),
    "null-array-that-cannot-be": _frame(_FIND_COORDINATOR, 4, b"\0\0\0"),
    "array-of-null-names": _frame(
        _METADATA, 10, encode_varint(40_001) + (bytes(17) + b"\0") * 40_000 + b"\0\0\0"
    ),
    "40000-empty-names": _frame(
        _METADATA, 9, encode_varint(40_001) + b"\1\0" * 40_000 + b"\0\0\0\0"
    ),
    "nested-empty-arrays": _frame(
        _CREATE_TOPICS,
        5,
        encode_varint(10_001) + b"\2t\0\0\0\1\0\1\1\1\0" * 10_000 + b"\0\0\0\0\0\0",
    ),
    "client-id-of-32-kb": struct.pack(">ihhih", 8 + 2 + 32_767, 18, 0, 1, 32_767) + b"c" * 32_767,
}


_QUICK = ("one-tag-of-60-mb", "40000-tags", "2000000-tags", "array-of-null-names")


@pytest.mark.parametrize(
    "what",
    [pytest.param(x, marks=[] if x in _QUICK else [pytest.mark.long]) for x in _FRAMES],
)
def test_frame_with(target: Target, attack: Attack, what: str) -> None:
    with attack():
        for _ in range(3):
            with target.connect() as peer:
                response_size(peer, _FRAMES[what])
