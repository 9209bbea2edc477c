"""The fetched batches of one partition are taken in parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.client.consumer.completed_fetch import CompletedFetch, ReadingRules, split_batches
from plog.client.errors import CorruptRecords, SerializationFailed
from plog.records.batch import Compression, TimestampType
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType
from plog.records.record_columns import RecordColumns
from plog.types import TopicPartition
from plog.wire.messages.fetch import AbortedTransaction
from tests.unit.client.consumer.test_aborted_transactions import data as transactional
from tests.unit.client.consumer.test_aborted_transactions import marker
from tests.unit.records.test_legacy import message as legacy_message

T0 = TopicPartition("t", 0)


def batch(*offsets: int, base: int | None = None, **fields: Any) -> bytes:
    records = [Record(offset=x, timestamp=1000 + x, value=b"%d" % x) for x in offsets]
    return build_batch(records, base_offset=offsets[0] if base is None else base, **fields)


def fetched(
    *batches: bytes, at: int = 0, aborted: tuple[tuple[int, int], ...] = (), **rules: Any
) -> CompletedFetch:
    data = b"".join(batches)
    listed = [AbortedTransaction(producer_id=who, first_offset=first) for who, first in aborted]
    split = split_batches(T0, at, data)
    return CompletedFetch(T0, at, split, ReadingRules(**rules), listed)


def offsets(one: CompletedFetch, wanted: int = 1000) -> list[int]:
    return [record.offset for record in one.take(wanted)]


def test_records_are_in_order_and_position_follows() -> None:
    one = fetched(batch(0, 1, 2), batch(3, 4, partition_leader_epoch=5))
    assert offsets(one, 2) == [0, 1]
    assert (one.next_offset, one.is_done) == (2, False)
    assert offsets(one, 2) == [2, 3]
    assert (one.next_offset, one.leader_epoch) == (4, 5)
    assert offsets(one, 2) == [4]
    assert (one.next_offset, one.is_done) == (5, True)
    assert offsets(one) == []


def test_record_has_all_fields() -> None:
    record = Record(timestamp=77, key=b"k", value=None, headers=(("h", b"x"), ("h", None)))
    built = build_batch(
        [record], base_offset=9, partition_leader_epoch=2, compression=Compression.ZSTD
    )
    [taken] = fetched(built, at=9).take(5)
    kind = TimestampType.CREATE_TIME
    assert taken == ("t", 0, 9, 77, kind, b"k", None, (("h", b"x"), ("h", None)), 2)
    assert taken.timestamp_type is kind


def test_log_append_time_applies_to_every_record() -> None:
    built = batch(0, 1, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {(x.timestamp, x.timestamp_type) for x in fetched(built).take(9)} == {(1001, 1)}


def test_records_before_fetch_offset_are_skipped() -> None:
    one = fetched(batch(10, 11, 12, 13), batch(14), at=12)
    assert offsets(one) == [12, 13, 14]


def test_batch_before_fetch_offset_is_skipped() -> None:
    assert offsets(fetched(batch(0, 1), batch(2), at=2)) == [2]


def test_partial_batch_at_the_end_is_ignored() -> None:
    whole, partial = batch(0, 1), batch(2, 3)[:-1]
    split = split_batches(T0, 0, whole + partial)
    assert (split.next_offset, split.error) == (2, None)
    one = fetched(whole, partial)
    assert offsets(one) == [0, 1]
    assert one.is_done


def test_bytes_without_complete_batch_are_an_error() -> None:
    one = fetched(batch(4, 5)[:-1], at=4)
    assert one.ends_damaged
    with pytest.raises(CorruptRecords, match=r"t-0 at offset 4"):
        one.take(1)
    assert (one.next_offset, one.is_done) == (4, False)


def test_position_moves_past_compacted_offsets() -> None:
    one = fetched(batch(3, 7, base=0), batch(20), at=1)
    assert offsets(one, 1) == [3]
    assert one.next_offset == 4
    assert offsets(one, 1) == [7]
    assert one.next_offset == 8
    assert offsets(one) == [20]


def test_position_follows_header_when_last_records_are_compacted() -> None:
    whole = batch(0, 1)
    # Compaction may remove the last record, but keeps the last offset delta.
    header = bytearray(whole)
    header[23:27] = (9).to_bytes(4, "big")
    one = fetched(bytes(header), check_crcs=False)
    assert offsets(one) == [0, 1]
    assert (one.next_offset, one.is_done) == (10, True)


def test_control_batches_only_move_the_position() -> None:
    one = fetched(marker(0, 7, ControlType.COMMIT), batch(1), marker(2, 7, ControlType.COMMIT))
    assert offsets(one, 5) == [1]
    assert (one.next_offset, one.is_done) == (3, True)
    only = fetched(marker(3, 7, ControlType.ABORT), at=3)
    assert offsets(only) == []
    assert (only.next_offset, only.is_done) == (4, True)


def test_empty_batch_moves_the_position() -> None:
    header = bytearray(batch(0, 1)[:61])
    header[8:12] = (49).to_bytes(4, "big")
    header[57:61] = bytes(4)
    one = fetched(bytes(header), batch(2), check_crcs=False)
    assert offsets(one) == [2]
    assert one.next_offset == 3


LOG = [
    transactional(0, 7),
    transactional(1, 8),
    marker(2, 7, ControlType.ABORT),
    transactional(3, 7),
    marker(4, 8, ControlType.COMMIT),
    marker(5, 7, ControlType.COMMIT),
]


def test_read_committed_skips_aborted_records() -> None:
    assert offsets(fetched(*LOG, aborted=((7, 0),), read_committed=True)) == [1, 3]


def test_read_uncommitted_returns_aborted_records() -> None:
    assert offsets(fetched(*LOG, aborted=((7, 0),))) == [0, 1, 3]


def damaged(*values: int) -> bytes:
    broken = bytearray(batch(*values))
    broken[-2] ^= 1  # A bit of the last value.
    return bytes(broken)


def test_corrupt_batch_raises_after_earlier_records_are_taken() -> None:
    one = fetched(batch(0, 1), damaged(2, 3), batch(4))
    assert offsets(one) == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecords, match=r"t-0, offsets 2 to 3: .* seek to 4") as caught:
            one.take(1)
        assert (caught.value.partition, caught.value.offset) == (T0, 3)
        assert one.next_offset == 2
    assert not one.is_done


def test_end_of_corrupt_batch_is_bounded_by_next_batch() -> None:
    """The corrupt part may be its own last offset delta."""
    broken = bytearray(batch(2, 3))
    broken[23:27] = (1 << 20).to_bytes(4, "big")
    with pytest.raises(CorruptRecords) as caught:
        fetched(bytes(broken), batch(4), at=2).take(1)
    assert caught.value.offset == 3


def test_only_undecodable_batches_are_errors_without_check_crcs() -> None:
    assert len(fetched(damaged(2, 3), check_crcs=False, at=2).take(5)) == 2
    broken = bytearray(batch(2, 3))
    broken[61] = 0x01
    with pytest.raises(CorruptRecords, match="extends beyond its batch"):
        fetched(bytes(broken), check_crcs=False, at=2).take(5)


def test_invalid_bytes_raise_after_valid_batches() -> None:
    broken = bytearray(batch(1))
    broken[16] = 9
    one = fetched(batch(0), bytes(broken), batch(2))
    assert offsets(one) == [0]
    with pytest.raises(CorruptRecords, match=r"t-0 at offset 1: .* magic 9"):
        one.take(1)


def test_batch_with_lower_offset_is_corrupt() -> None:
    broken = bytearray(batch(5, 6))
    broken[0:8] = (1).to_bytes(8, "big")
    broken[70] ^= 1
    one = fetched(batch(3, 4), bytes(broken), at=3)
    assert offsets(one) == [3, 4]
    with pytest.raises(CorruptRecords):
        one.take(1)


def test_error_of_unknown_codec_names_offset() -> None:
    broken = bytearray(batch(5))
    broken[22] |= 6
    with pytest.raises(CorruptRecords, match=r"compression type 6 is not supported.* seek to 6"):
        fetched(bytes(broken), at=5, check_crcs=False).take(1)


def test_old_message_formats_are_read() -> None:
    old = legacy_message(1, 5, timestamp=8, value=b"5") + legacy_message(0, 6, value=b"6")
    one = fetched(old, batch(7), legacy_message(1, 8)[:-1], at=6)
    assert [(x.offset, x.value) for x in one.take(9)] == [(6, b"6"), (7, b"7")]
    assert one.is_done


def test_corruption_in_old_message_formats_is_an_error() -> None:
    broken = bytearray(legacy_message(1, 5, value=b"5"))
    broken[-1] ^= 1
    with pytest.raises(CorruptRecords, match=r"t-0 at offset 5: .* checksum"):
        fetched(bytes(broken), at=5).take(1)


def as_json(data: bytes) -> Any:
    return json.loads(data)


def test_deserializers_convert_bytes_but_not_null() -> None:
    records = [
        Record(timestamp=1, key=b"1", value=b'{"a": 2}'),
        Record(timestamp=1, key=None, value=None),
    ]
    one = fetched(build_batch(records), deserialize_key=int, deserialize_value=as_json)
    assert [(x.key, x.value) for x in one.take(5)] == [(1, {"a": 2}), (None, None)]


@pytest.mark.parametrize("part", ["key", "value"])
def test_deserializer_error_is_raised_after_earlier_records(part: str) -> None:
    records = [Record(timestamp=1, **{part: x}) for x in (b"1", b"x", b"3")]
    one = fetched(build_batch(records), deserialize_key=int, deserialize_value=int)
    assert [getattr(x, part) for x in one.take(5)] == [1]
    assert one.next_offset == 1
    for _ in range(2):
        with pytest.raises(SerializationFailed, match=f"t-0 at offset 1: .* {part} .*seek to 2"):
            one.take(5)
    assert (one.next_offset, one.is_done) == (1, False)


def test_deserializer_error_of_first_record_is_raised_immediately() -> None:
    one = fetched(batch(4), build_batch([Record(timestamp=1, value=b"x")], base_offset=5), at=4)
    one = fetched(build_batch([Record(timestamp=1, value=b"x")]), deserialize_value=int)
    with pytest.raises(SerializationFailed) as caught:
        one.take(5)
    assert caught.value.offset == 0
    assert isinstance(caught.value.__cause__, ValueError)


def test_columns_contain_the_same_records_in_runs() -> None:
    one = fetched(batch(0, 1, 2), batch(3, 4, partition_leader_epoch=5))
    columns = RecordColumns()
    assert one.take_columns(columns, 2) == [(T0, 0, -1, 2)]
    assert one.next_offset == 2
    assert one.take_columns(columns, 5) == [(T0, 0, -1, 1), (T0, 0, 5, 2)]
    assert columns.offsets.tolist() == [0, 1, 2, 3, 4]
    assert (one.next_offset, one.is_done) == (5, True)


def test_columns_skip_batches_without_records() -> None:
    columns = RecordColumns()
    one = fetched(marker(0, 7, ControlType.COMMIT))
    assert one.take_columns(columns, 9) == []
    assert (len(columns), one.next_offset, one.is_done) == (0, 1, True)
    header = bytearray(batch(0, 1)[:61])
    header[8:12] = (49).to_bytes(4, "big")
    header[57:61] = bytes(4)
    one = fetched(bytes(header), check_crcs=False)
    assert one.take_columns(columns, 9) == []
    assert (len(columns), one.next_offset, one.is_done) == (0, 2, True)


def test_columns_raise_same_error_for_corrupt_batch() -> None:
    one = fetched(batch(0), damaged(1), batch(2))
    columns = RecordColumns()
    assert len(one.take_columns(columns, 9)) == 1
    with pytest.raises(CorruptRecords):
        one.take_columns(columns, 9)
    assert one.next_offset == 1


def test_columns_are_not_deserialized() -> None:
    one = fetched(build_batch([Record(timestamp=1, value=b"x")]), deserialize_value=int)
    with pytest.raises(SerializationFailed):
        one.take(1)
    columns = RecordColumns()
    one.take_columns(columns, 1)
    assert (columns.values, one.is_done) == ([b"x"], True)


sizes = st.lists(st.integers(1, 7), min_size=1, max_size=6)


@given(sizes, st.integers(0, 20), st.lists(st.tuples(st.booleans(), st.integers(1, 9))))
def test_records_and_columns_can_be_taken_alternately(
    counts: list[int], at: int, steps: list[tuple[bool, int]]
) -> None:
    batches, end = [], 0
    for count in counts:
        batches.append(batch(*range(end, end + count)))
        end += count
    at = min(at, end - 1)
    one = fetched(*batches, at=at)
    taken: list[int] = []
    for as_columns, wanted in [*steps, (False, 100)]:
        if as_columns:
            columns = RecordColumns()
            one.take_columns(columns, wanted)
            found = columns.offsets.tolist()
        else:
            found = offsets(one, wanted)
        assert len(found) <= wanted
        assert one.next_offset == (found[-1] + 1 if found else one.next_offset)
        taken += found
    assert taken == list(range(at, end))
    assert one.is_done
