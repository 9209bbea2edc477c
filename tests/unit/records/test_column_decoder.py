"""plog/records/column_decoder.py: the same records as `decode_records`, in Arrow's layout."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.records import column_decoder
from plog.records.batch import CorruptRecords, TimestampType, parse_header
from plog.records.builder import build_batch
from plog.records.codec import Record, decode_records
from plog.records.column_decoder import ColumnDecoder
from plog.records.reader import read_payload
from plog.records.record_columns import RecordColumns
from tests.unit.records.test_codec_consumer import records_of_a_batch


@pytest.fixture(scope="module", autouse=True)
def _in_both_forms(codec: ModuleType) -> Iterator[None]:
    with mock.patch.object(column_decoder, "decode_into_columns", codec.decode_into_columns):
        yield


def rows(columns: RecordColumns) -> list[Record]:
    """Return the columns as records."""

    def values(ends: list[int], data: bytes, present: bytes) -> list[bytes | None]:
        parts = zip(ends, ends[1:], present, strict=False)
        return [data[start:end] if there else None for start, end, there in parts]

    keys = values(columns.key_ends.tolist(), b"".join(columns.keys), bytes(columns.has_key))
    found = values(columns.value_ends.tolist(), b"".join(columns.values), bytes(columns.has_value))
    assert len(keys) == len(found) == len(columns) == len(columns.timestamps)
    return [
        Record(*one, columns.headers.get(row, ()))
        for row, one in enumerate(
            zip(columns.offsets, columns.timestamps, keys, found, strict=True)
        )
    ]


def decode(batch: bytes, columns: RecordColumns, from_offset: int = 0, max_rows: int = 1000) -> int:
    header = parse_header(batch)
    decoder = ColumnDecoder(columns, max_rows=max_rows, records_count=header.records_count)
    try:
        return decoder.decode(read_payload(batch, 0, header), header, from_offset=from_offset)
    finally:
        decoder.close()


@given(records_of_a_batch, st.sampled_from(TimestampType))
def test_columns_equal_decoded_records(
    records: list[Record], timestamp_type: TimestampType
) -> None:
    batch = build_batch(records, base_offset=40, timestamp_type=timestamp_type)
    header = parse_header(batch)
    columns = RecordColumns()
    assert decode(batch, columns) == header.next_offset
    assert rows(columns) == decode_records(read_payload(batch, 0, header), header)


@given(records_of_a_batch, st.integers(1, 5), st.integers(38, 64))
def test_batch_can_be_decoded_in_parts(records: list[Record], piece: int, from_offset: int) -> None:
    batch = build_batch(records, base_offset=40)
    header = parse_header(batch)
    columns = RecordColumns()
    offset = from_offset
    while offset < header.next_offset:
        before = len(columns)
        offset = decode(batch, columns, offset, piece)
        assert len(columns) - before <= piece
    wanted = [x for x in decode_records(batch[61:], header) if x.offset >= from_offset]
    assert rows(columns) == wanted


def test_batches_are_appended_to_same_columns() -> None:
    columns = RecordColumns()
    decode(build_batch([Record(timestamp=1, key=b"a", value=None)]), columns)
    decode(build_batch([Record(timestamp=2, key=None, value=b"bc")], base_offset=1), columns)
    assert rows(columns) == [Record(0, 1, b"a", None), Record(1, 2, None, b"bc")]
    assert not columns.is_full


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(1, 12), st.integers(0, 3))
def test_decoder_appends_batches_until_its_rows_are_full(
    counts: list[int], max_rows: int, more: int
) -> None:
    columns = RecordColumns()
    decoder = ColumnDecoder(columns, max_rows=max_rows, records_count=sum(counts) + more)
    wanted, base = [], 0
    for count in counts:
        records = [Record(base + one, 7, None, b"v" * one) for one in range(count)]
        batch = build_batch(records, base_offset=base)
        base += count
        if decoder.is_full:
            break
        decoder.decode(batch[61:], parse_header(batch))
        wanted += records
    decoder.close()
    assert rows(columns) == wanted[:max_rows]


def test_decoder_continues_after_a_damaged_batch() -> None:
    columns = RecordColumns()
    decoder = ColumnDecoder(columns, max_rows=9, records_count=9)
    batch = build_batch([Record(timestamp=1, key=b"k", value=b"v")] * 3)
    header = parse_header(batch)
    with pytest.raises(CorruptRecords):
        decoder.decode(batch[61:-1], header)
    decoder.decode(batch[61:], header)
    decoder.close()
    assert rows(columns) == [Record(offset, 1, b"k", b"v") for offset in range(3)]


@given(st.data())
def test_damaged_batch_leaves_columns_unchanged(data: st.DataObject) -> None:
    columns = RecordColumns()
    first = Record(timestamp=1, key=b"a", value=b"b", headers=(("h", None),))
    decode(build_batch([first]), columns)
    before = rows(columns)
    records = [Record(timestamp=5, key=b"k" * 70, value=b"v" * 200, headers=(("x", b"y"),))] * 3
    batch = bytearray(build_batch(records, base_offset=1))
    position = data.draw(st.integers(61, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(batch), columns)
    except CorruptRecords:
        assert rows(columns) == before
        assert columns.headers.keys() == {0}
    else:
        assert len(columns) == 4


def test_truncated_bytes_are_corrupt() -> None:
    batch = build_batch([Record(timestamp=1, value=b"v" * 20)] * 2)
    header = parse_header(batch)
    columns = RecordColumns()
    decoder = ColumnDecoder(columns, max_rows=9, records_count=2)
    with pytest.raises(CorruptRecords):
        decoder.decode(batch[61:-3], header)
    decoder.close()
    assert len(columns) == 0
    assert columns.values == []
    assert columns.value_ends.tolist() == [0]


@given(records_of_a_batch, st.data())
def test_truncated_columns_contain_the_first_rows(
    records: list[Record], data: st.DataObject
) -> None:
    columns = RecordColumns()
    for base in (0, 100):
        decode(build_batch([one._replace(offset=-1) for one in records], base_offset=base), columns)
    before = rows(columns)
    kept = data.draw(st.integers(0, len(before)))
    columns.truncate(kept)
    assert rows(columns) == before[:kept]
    assert sum(map(len, columns.values)) == columns.value_ends[-1]
    assert sum(map(len, columns.keys)) == columns.key_ends[-1]


def test_keys_and_values_of_a_batch_are_joined() -> None:
    columns = RecordColumns()
    records = [Record(timestamp=1, key=b"k", value=value) for value in (b"a", None, b"b")]
    for base in (0, 3):
        decode(build_batch(records, base_offset=base), columns)
    assert (columns.keys, columns.values) == ([b"kkk", b"kkk"], [b"ab", b"ab"])


def test_full_columns_reject_more_records() -> None:
    batch = build_batch([Record(timestamp=1, value=b"v" * 20)] * 2)
    columns = RecordColumns()
    with (
        mock.patch.object(column_decoder, "_MAX_END", 50),
        pytest.raises(ValueError, match="full"),
    ):
        decode(batch, columns)
    assert len(columns) == 0


def test_largest_offset_and_timestamp_fit() -> None:
    top = (1 << 63) - 1
    columns = RecordColumns()
    batch = build_batch([Record(offset=top, timestamp=top)], base_offset=top)
    assert decode(batch, columns, top) == top + 1
    assert rows(columns) == [Record(top, top)]
