"""plog/records/batch.py: header fields, iteration over batches, checksum, and changes in place."""

from __future__ import annotations

from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.errors import UnsupportedCompressionType, UnsupportedForMessageFormat
from plog.records.batch import (
    HEADER,
    HEADER_SIZE,
    MAX_SEQUENCE,
    BatchHeader,
    Compression,
    CorruptBatch,
    TimestampType,
    crc_is_valid,
    iter_batches,
    parse_header,
    read_size_and_magic,
    set_append_time,
    set_base_offset_and_epoch,
)
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.crc32c import crc32c
from plog.records.reader import read_records
from tests.corpus.records import FIRST_TIMESTAMP, load

JAVA = load("java-4.3.1-none")


def _header(**fields: int) -> BatchHeader:
    return parse_header(JAVA)._replace(**fields)


def test_header_of_captured_batch_has_expected_fields() -> None:
    assert parse_header(JAVA) == BatchHeader(
        base_offset=0,
        batch_length=len(JAVA) - 12,
        partition_leader_epoch=0,
        magic=2,
        crc=crc32c(JAVA[21:]),
        attributes=0,
        last_offset_delta=4,
        base_timestamp=FIRST_TIMESTAMP,
        max_timestamp=FIRST_TIMESTAMP + 70_000,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=5,
    )


def test_properties_are_derived_from_fields() -> None:
    header = parse_header(load("kafka-python-3.0.12-idempotent"))._replace(base_offset=100)
    assert header.size_bytes == len(JAVA)
    assert (header.last_offset, header.next_offset) == (104, 105)
    assert (header.base_sequence, header.last_sequence) == (MAX_SEQUENCE - 2, 1)
    assert header.has_producer_id
    assert not header.is_transactional
    assert not header.is_control
    assert header.timestamp_type is TimestampType.CREATE_TIME


def test_last_sequence_is_negative_without_producer_id() -> None:
    assert _header().last_sequence == -1
    assert not _header().has_producer_id


def test_attributes_of_captured_batches_are_decoded() -> None:
    assert parse_header(load("java-4.3.1-transactional")).is_transactional
    commit = parse_header(load("kafka-4.3.1-commit"))
    assert commit.is_control
    assert commit.is_transactional
    append_time = parse_header(load("librdkafka-2.16.1-log-append-time"))
    assert append_time.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert append_time.compression is Compression.LZ4


@pytest.mark.parametrize("number", [5, 6, 7])
def test_error_names_unknown_codec(number: int) -> None:
    with pytest.raises(UnsupportedCompressionType, match=str(number)):
        _ = _header(attributes=number).compression


@pytest.mark.parametrize(("length", "position"), [(60, 0), (0, 0), (122, 62), (61, -1)])
def test_truncated_header_is_corrupt(length: int, position: int) -> None:
    with pytest.raises(CorruptBatch):
        parse_header(bytes(length), position)


def test_size_and_magic_are_read_from_partial_header() -> None:
    assert read_size_and_magic(JAVA[:17]) == (len(JAVA), 2)
    data = bytearray(JAVA[:17])
    data[16] = 0xFE
    assert read_size_and_magic(b"xx" + data, 2) == (len(JAVA), -2)
    with pytest.raises(CorruptBatch):
        read_size_and_magic(JAVA[:16])


def test_iteration_stops_before_partial_batch() -> None:
    size = len(JAVA)
    for cut in (2 * size, 2 * size + 1, 2 * size + 40, 3 * size - 1):
        positions = [position for position, _ in iter_batches((JAVA * 3)[:cut])]
        assert positions == [0, size]


@pytest.mark.parametrize("magic", [0, 1])
def test_iteration_rejects_old_formats(magic: int) -> None:
    data = bytearray(34)  # The smallest message of magic 1 is shorter than a header of magic 2.
    pack_into(">qi", data, 0, 0, 22)
    data[16] = magic
    with pytest.raises(UnsupportedForMessageFormat, match=f"magic {magic}"):
        list(iter_batches(data))


@pytest.mark.parametrize(
    ("length", "magic"), [(48, 2), (0, 2), (-12, 2), (-(1 << 31), 2), (1098, 3), (1098, 255)]
)
def test_iteration_rejects_invalid_sizes(length: int, magic: int) -> None:
    data = bytearray(JAVA)
    pack_into(">i", data, 8, length)
    data[16] = magic
    with pytest.raises(CorruptBatch):
        list(iter_batches(data))


@given(st.binary(max_size=200))
def test_iteration_over_any_bytes_ends(data: bytes) -> None:
    try:
        for position, header in iter_batches(data):
            assert position + header.size_bytes <= len(data)
    except (CorruptBatch, UnsupportedForMessageFormat):
        pass


def test_checksum_covers_every_bit_after_it() -> None:
    header = parse_header(JAVA)
    assert crc_is_valid(JAVA, 0, header)
    assert crc_is_valid(b"in front" + JAVA, 8, header)
    for position in (17, 21, 60, 61, len(JAVA) - 1):
        data = bytearray(JAVA)
        data[position] ^= 1
        assert not crc_is_valid(data, 0, parse_header(data))


@pytest.mark.parametrize("length", [48, -1, -(1 << 31), 1 << 30])
def test_checksum_is_invalid_when_size_is_wrong(length: int) -> None:
    assert not crc_is_valid(JAVA, 0, _header(batch_length=length))


def test_checksum_stays_valid_when_offset_and_epoch_are_set() -> None:
    data = bytearray(b"in front" + JAVA)
    set_base_offset_and_epoch(memoryview(data), 8, 1 << 40, 17)
    header = parse_header(data, 8)
    assert header == _header(base_offset=1 << 40, partition_leader_epoch=17)
    assert crc_is_valid(data, 8, header)
    assert data.startswith(b"in front")


@pytest.mark.parametrize("compression", Compression)
def test_append_time_replaces_timestamps_of_all_records(compression: Compression) -> None:
    records = [Record(timestamp=5, value=b"a"), Record(timestamp=9, value=b"b")]
    data = bytearray(b"in front" + build_batch(records, compression=compression))
    header = set_append_time(memoryview(data), 8, parse_header(data, 8), 1234)
    assert header == parse_header(data, 8)
    assert crc_is_valid(data, 8, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.compression is compression
    assert (header.base_timestamp, header.max_timestamp) == (5, 1234)
    assert [record.timestamp for record in read_records(data, 8, header)] == [1234, 1234]


@given(
    st.builds(
        BatchHeader,
        base_offset=st.integers(-(1 << 63), (1 << 63) - 1),
        batch_length=st.integers(-(1 << 31), (1 << 31) - 1),
        partition_leader_epoch=st.integers(-(1 << 31), (1 << 31) - 1),
        magic=st.integers(-128, 127),
        crc=st.integers(0, (1 << 32) - 1),
        attributes=st.integers(-(1 << 15), (1 << 15) - 1),
        last_offset_delta=st.integers(-(1 << 31), (1 << 31) - 1),
        base_timestamp=st.integers(-(1 << 63), (1 << 63) - 1),
        max_timestamp=st.integers(-(1 << 63), (1 << 63) - 1),
        producer_id=st.integers(-(1 << 63), (1 << 63) - 1),
        producer_epoch=st.integers(-(1 << 15), (1 << 15) - 1),
        base_sequence=st.integers(-(1 << 31), (1 << 31) - 1),
        records_count=st.integers(-(1 << 31), (1 << 31) - 1),
    )
)
def test_header_survives_round_trip(header: BatchHeader) -> None:
    assert HEADER.size == HEADER_SIZE
    assert parse_header(HEADER.pack(*header)) == header
