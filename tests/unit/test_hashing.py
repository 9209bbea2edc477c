"""plog/hashing.py: murmur2 with the values of Kafka's own test, and Java's hash of a string."""

from __future__ import annotations

import pytest

from plog.hashing import java_hash, murmur2, partition_for_key

KAFKAS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("data", "signed"), KAFKAS.items())
def test_murmur2_equals_kafkas(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed % 2**32


@pytest.mark.parametrize(("data", "signed"), KAFKAS.items())
def test_partition_for_key_equals_kafkas(data: bytes, signed: int) -> None:
    assert partition_for_key(data, 7) == (signed & 0x7FFFFFFF) % 7


def test_murmur2_includes_last_incomplete_word() -> None:
    hashes = {murmur2(b"abcdefgh"[:length]) for length in range(9)}
    assert len(hashes) == 9


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("g", 103), ("grün", 3185949), ("日本", 835047), ("🦆 duck", 392036561)],
)
def test_java_hash_equals_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected
