"""plog/records/builder.py: batches, also compared with those of other clients."""

from __future__ import annotations

import pytest

from plog.errors import InvalidTimestamp
from plog.records.batch import (
    MAX_SEQUENCE,
    Compression,
    TimestampType,
    crc_is_valid,
    parse_header,
)
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.reader import read_records
from tests.corpus.records import RECORDS, load, names

every_codec = pytest.mark.parametrize("compression", Compression)


def test_batch_equals_java_producers() -> None:
    assert build_batch(RECORDS, partition_leader_epoch=0) == load("java-4.3.1-none")


@pytest.mark.parametrize("name", names("idempotent"))
def test_batch_equals_idempotent_producers(name: str) -> None:
    theirs = parse_header(load(name))
    ours = build_batch(
        RECORDS,
        producer_id=theirs.producer_id,
        producer_epoch=theirs.producer_epoch,
        base_sequence=theirs.base_sequence,
        partition_leader_epoch=theirs.partition_leader_epoch,
    )
    assert ours == load(name)


@every_codec
def test_batch_survives_round_trip(compression: Compression) -> None:
    data = build_batch(RECORDS, compression=compression)
    header = parse_header(data)
    assert crc_is_valid(data, 0, header)
    assert header.size_bytes == len(data)
    assert header.compression is compression
    assert read_records(data, 0, header) == list(RECORDS)


def test_arguments_are_written_to_header() -> None:
    header = parse_header(
        build_batch(
            [Record(timestamp=8), Record(timestamp=9), Record(timestamp=7)],
            base_offset=1 << 40,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            producer_id=1 << 50,
            producer_epoch=32767,
            base_sequence=MAX_SEQUENCE,
            is_transactional=True,
            is_control=True,
            partition_leader_epoch=12,
        )
    )
    assert header.attributes == 0b0011_1000
    assert (header.base_offset, header.last_offset_delta, header.records_count) == (1 << 40, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (8, 9)
    assert (header.producer_id, header.producer_epoch) == (1 << 50, 32767)
    assert (header.base_sequence, header.last_sequence) == (MAX_SEQUENCE, 1)
    assert header.partition_leader_epoch == 12


@pytest.mark.parametrize(
    ("offsets", "last_delta"),
    [((-1,), 0), ((-1, -1), 1), ((7, 9), 4), ((7, -1), 3), ((-1, 9, -1, -1), 6)],
)
def test_last_offset_delta_includes_gaps(offsets: tuple[int, ...], last_delta: int) -> None:
    data = build_batch([Record(offset) for offset in offsets], base_offset=5)
    header = parse_header(data)
    assert header.last_offset_delta == last_delta
    assert read_records(data, 0, header)[-1].offset == 5 + last_delta


def test_compression_level_is_used() -> None:
    records = [Record(value=b"%d," % i * 50) for i in range(300)]
    sizes = {
        len(build_batch(records, compression=Compression.GZIP, level=level)) for level in (1, 9)
    }
    assert len(sizes) == 2


def test_empty_batch_is_rejected() -> None:
    with pytest.raises(ValueError, match="without records"):
        build_batch([])


def test_negative_timestamp_is_rejected() -> None:
    with pytest.raises(InvalidTimestamp):
        build_batch([Record(timestamp=0), Record(timestamp=-2)])


@every_codec
def test_kafka_python_reads_built_batch(compression: Compression) -> None:
    memory_records = pytest.importorskip("kafka.record.memory_records")
    records = [record._replace(offset=1000 + record.offset) for record in RECORDS]
    data = build_batch(records, base_offset=1000, compression=compression, producer_id=5)
    batch = memory_records.MemoryRecords(data).next_batch()
    assert batch.validate_crc()
    assert batch.base_offset == 1000
    assert batch.producer_id == 5
    read = [
        Record(record.offset, record.timestamp, record.key, record.value, (*record.headers,))
        for record in batch
    ]
    assert read == records
