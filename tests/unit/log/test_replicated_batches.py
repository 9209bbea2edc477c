"""The checks of a follower's batches: framing, checksums, rising offsets, epochs."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.errors import CorruptMessage, UnsupportedForMessageFormat
from plog.records.batch import MAGIC_POSITION, Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plogd.log.replicated_batches import (
    ReplicatedBatch,
    UnexpectedAppendOffset,
    batches_that_fit,
    check_replicated_batches,
    segment_base_offset,
)
from tests.helpers.log.log_data import marker_batch


def _batch(base_offset: int, count: int = 1, epoch: int = 3) -> bytes:
    records = [Record(timestamp=1, value=b"value")] * count
    return build_batch(records, base_offset=base_offset, partition_leader_epoch=epoch)


def _check(
    data: bytes | bytearray, next_offset: int = 5, leader_epoch: int = 3
) -> list[ReplicatedBatch]:
    return check_replicated_batches(
        memoryview(data), next_offset=next_offset, leader_epoch=leader_epoch
    )


def _offsets(batches: list[ReplicatedBatch]) -> list[int]:
    return [header.base_offset for _, header in batches]


def test_whole_batches_are_returned_with_their_positions_despite_gaps() -> None:
    data = _batch(5, 2) + _batch(7) + _batch(100)
    first, second, third = _check(data)
    assert [first.position, second.position] == [0, len(_batch(5, 2))]
    assert third.end_position == len(data)
    assert _offsets([first, second, third]) == [5, 7, 100]


@given(st.integers(0, len(_batch(6)) - 1))
def test_incomplete_last_batch_is_ignored(nbytes: int) -> None:
    assert _offsets(_check(_batch(5) + _batch(6)[:nbytes])) == [5]


@pytest.mark.parametrize("offsets", [(4,), (5, 5), (6, 5), (2**63 - 1,)])
def test_offsets_that_do_not_rise_from_the_end_of_the_log_are_rejected(
    offsets: tuple[int, ...],
) -> None:
    with pytest.raises(CorruptMessage, match="must begin at or above offset"):
        _check(b"".join(map(_batch, offsets)))


def test_first_batch_that_contains_the_end_of_the_log_is_unexpected() -> None:
    with pytest.raises(UnexpectedAppendOffset) as raised:
        _check(_batch(3, 3) + _batch(6))
    assert raised.value.first_offset == 3


@pytest.mark.parametrize("batches", [[(3, 2)], [(5, 1), (5, 3)], [(-1, 9)]])
def test_batch_that_does_not_contain_the_end_of_the_log_is_corrupt(
    batches: list[tuple[int, int]],
) -> None:
    with pytest.raises(CorruptMessage) as raised:
        _check(b"".join(_batch(*one) for one in batches))
    assert not isinstance(raised.value, UnexpectedAppendOffset)


def test_damaged_batch_that_contains_the_end_of_the_log_is_corrupt() -> None:
    data = bytearray(_batch(3, 3))
    data[-1] ^= 1
    with pytest.raises(CorruptMessage, match="checksum"):
        _check(data)


def test_negative_offset_delta_is_rejected() -> None:
    data = bytearray(_batch(5))
    struct.pack_into(">i", data, 23, -1)
    with pytest.raises(CorruptMessage, match="must begin at or above offset"):
        _check(data)


def test_batch_that_fails_its_checksum_is_rejected() -> None:
    data = bytearray(_batch(5) + _batch(6))
    data[-1] ^= 1
    with pytest.raises(CorruptMessage, match="base offset 6, fails its checksum"):
        _check(data)


def test_batch_of_an_old_format_is_rejected() -> None:
    data = bytearray(_batch(5))
    data[MAGIC_POSITION] = 1
    with pytest.raises(UnsupportedForMessageFormat):
        _check(data)


def test_batches_of_a_later_epoch_and_all_after_them_are_ignored() -> None:
    """The leader of epoch 3 has not written them, so they may be damaged or stale."""
    assert _offsets(_check(_batch(5) + _batch(6, epoch=4) + _batch(7))) == [5]
    assert _check(_batch(5, epoch=4)) == []


def test_marker_that_cannot_be_read_is_rejected() -> None:
    assert _offsets(_check(marker_batch(5))) == [5]
    for data in (marker_batch(5, value=b"?"), marker_batch(5, compression=Compression.GZIP)):
        with pytest.raises(CorruptMessage):
            _check(data)


def test_new_segment_begins_at_the_log_end_unless_the_gap_is_enormous() -> None:
    [batch] = _check(_batch(2**31 + 4))
    assert segment_base_offset(5, batch.header) == 5
    [batch] = _check(_batch(2**31 + 5))
    assert segment_base_offset(5, batch.header) == 2**31 + 5


def test_at_most_256_batches_are_written_together() -> None:
    batches = _check(b"".join(map(_batch, range(5, 305))))
    assert len(batches_that_fit(batches, room_bytes=1 << 30, base_offset=5)) == 256


def test_batches_that_fit_are_limited_by_bytes_and_by_relative_offsets() -> None:
    data = _batch(5) + _batch(6) + _batch(7) + _batch(2**31 + 10)
    batches, size = _check(data), len(_batch(5))
    for room_bytes, count in ((0, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (1 << 20, 3)):
        assert len(batches_that_fit(batches, room_bytes=room_bytes, base_offset=5)) == count
    assert len(batches_that_fit(batches, room_bytes=1 << 20, base_offset=100)) == 4
    assert len(batches_that_fit(batches[1:], room_bytes=size, base_offset=5)) == 1
