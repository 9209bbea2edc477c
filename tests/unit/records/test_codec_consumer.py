"""`decode_consumer_records`: the same records as `decode_records`, in the consumer's type."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.client.values import ConsumerRecord
from plog.records.batch import CorruptRecords, TimestampType, parse_header
from plog.records.builder import build_batch
from plog.records.codec import Record, decode_consumer_records, decode_records
from plog.records.reader import read_payload

nullable = st.none() | st.binary(max_size=200)
records_of_a_batch = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        timestamp=st.integers(0, 1 << 42),
        key=nullable,
        value=nullable,
        headers=st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


def decoded(batch: bytes) -> list[ConsumerRecord]:
    header = parse_header(batch)
    payload = read_payload(batch, 0, header)
    return decode_consumer_records(payload, header, ConsumerRecord, "t", 7)


@given(records_of_a_batch, st.sampled_from(TimestampType))
def test_consumer_records_equal_decoded_records(
    records: list[Record], timestamp_type: TimestampType
) -> None:
    batch = build_batch(
        records, base_offset=40, timestamp_type=timestamp_type, partition_leader_epoch=3
    )
    header = parse_header(batch)
    plain = decode_records(read_payload(batch, 0, header), header)
    assert decoded(batch) == [
        ConsumerRecord(
            "t", 7, one.offset, one.timestamp, timestamp_type, one.key, one.value, one.headers, 3
        )
        for one in plain
    ]


def test_offset_gaps_of_compaction_are_kept() -> None:
    records = [Record(offset=offset, timestamp=1, value=b"v") for offset in (12, 15, 19)]
    assert [one.offset for one in decoded(build_batch(records, base_offset=10))] == [12, 15, 19]


@given(st.data())
def test_damaged_bytes_are_decoded_or_rejected(data: st.DataObject) -> None:
    batch = bytearray(build_batch([Record(timestamp=5, key=b"k" * 70, value=b"v" * 200)] * 3))
    position = data.draw(st.integers(61, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    try:
        found = decoded(bytes(batch))
    except CorruptRecords:
        return
    assert len(found) == 3


def test_impossible_record_count_is_rejected_before_decoding() -> None:
    batch = build_batch([Record(timestamp=1, value=b"v")])
    header = parse_header(batch)._replace(records_count=1 << 30)
    with pytest.raises(CorruptRecords):
        decode_consumer_records(batch[61:], header, ConsumerRecord, "t", 0)
