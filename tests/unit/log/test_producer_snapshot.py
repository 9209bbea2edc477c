"""The snapshot file, byte by byte, and detection of damage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.records.crc32c import crc32c
from plogd.log.producer_snapshot import (
    CorruptSnapshot,
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


entries = st.builds(
    SnapshotEntry,
    _signed(64),
    _signed(16),
    _signed(32),
    _signed(64),
    _signed(32),
    _signed(64),
    _signed(32),
    _signed(64),
)

ONE = encode_snapshot([SnapshotEntry(4711, 3, 99, 1234, 4, 1_700_000_000_000, -1, -1)])


def test_bytes_equal_those_of_kafka() -> None:
    assert ONE.hex() == (
        "0001"
        "ff5ac121"
        "00000001"
        "0000000000001267"
        "0003"
        "00000063"
        "00000000000004d2"
        "00000004"
        "0000018bcfe56800"
        "ffffffff"
        "ffffffffffffffff"
    )


@settings(deadline=None)
@given(st.lists(entries, max_size=5))
def test_entries_survive_a_round_trip(some: list[SnapshotEntry]) -> None:
    assert decode_snapshot(encode_snapshot(some)) == some


@pytest.mark.parametrize(
    "data",
    [b"", ONE[:9], ONE[:-1], ONE + b"\0", b"\0\2" + ONE[2:], bytes(len(ONE)), b"\xff" * 56],
)
def test_wrong_size_or_version_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(data)


@settings(deadline=None)
@given(st.integers(0, len(ONE) * 8 - 1))
def test_every_bit_flip_is_detected(bit: int) -> None:
    damaged = bytearray(ONE)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(damaged))


def test_wrong_count_with_a_valid_checksum_is_corrupt() -> None:
    two = encode_snapshot([SnapshotEntry(*[0] * 8)] * 2)
    assert len(two) == 10 + 2 * 46
    body = (3).to_bytes(4, "big") + two[10:]
    with pytest.raises(CorruptSnapshot, match="3 entries"):
        decode_snapshot(two[:2] + crc32c(body).to_bytes(4, "big") + body)
