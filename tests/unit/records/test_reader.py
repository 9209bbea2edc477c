"""plog/records/reader.py: batches of several clients, and fetch responses with partial batches."""

from __future__ import annotations

import pytest

from plog.errors import UnsupportedCompressionType
from plog.records.batch import (
    Compression,
    CorruptBatch,
    CorruptRecords,
    crc_is_valid,
    parse_header,
)
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.compression import DecompressionTooLarge
from plog.records.reader import iter_records, read_records
from tests.corpus.records import RECORDS, load, names

PRODUCED = [name for name in names() if not name.startswith("kafka-4")]


@pytest.mark.parametrize("name", PRODUCED)
def test_captured_batch_decodes_to_sent_records(name: str) -> None:
    data = load(name)
    header = parse_header(data)
    assert crc_is_valid(data, 0, header)
    assert header.size_bytes == len(data)
    read = read_records(data, 0, header)
    if name.endswith("log-append-time"):
        assert {record.timestamp for record in read} == {header.max_timestamp}
        read = [
            record._replace(timestamp=sent.timestamp)
            for record, sent in zip(read, RECORDS, strict=True)
        ]
    assert read == list(RECORDS)


def test_batch_in_middle_of_buffer_is_read() -> None:
    data = memoryview(bytearray(b"in front" + load("java-4.3.1-zstd") + b"behind"))
    assert read_records(data, 8, parse_header(data, 8)) == list(RECORDS)


def test_truncated_batch_is_rejected() -> None:
    data = load("java-4.3.1-none")
    header = parse_header(data)
    for length in (len(data) - 11, 48, -1, -(1 << 31)):
        with pytest.raises(CorruptBatch):
            read_records(data, 0, header._replace(batch_length=length))


def test_unknown_codec_and_bomb_are_rejected() -> None:
    data = build_batch([Record(value=bytes(10_000))], compression=Compression.ZSTD)
    header = parse_header(data)
    with pytest.raises(UnsupportedCompressionType):
        read_records(data, 0, header._replace(attributes=7))
    with pytest.raises(DecompressionTooLarge):
        read_records(data, 0, header, max_bytes=10_000)
    with pytest.raises(CorruptRecords):
        read_records(data, 0, header._replace(attributes=Compression.GZIP))


def _log() -> bytes:
    first = build_batch([Record(value=b"%d" % i) for i in range(5)], base_offset=10)
    second = build_batch([Record(value=b"5")], base_offset=15, compression=Compression.LZ4)
    control = build_batch([Record(value=b"control")], base_offset=16, is_control=True)
    third = build_batch([Record(value=b"7")], base_offset=17)
    return first + second + control + third


def test_records_are_read_from_given_offset() -> None:
    offsets = [record.offset for record in iter_records(_log(), from_offset=13)]
    assert offsets == [13, 14, 15, 17]
    assert [record.value for record in iter_records(_log(), from_offset=15)] == [b"5", b"7"]
    assert list(iter_records(_log(), from_offset=18)) == []
    assert list(iter_records(b"")) == []


def test_partial_last_batch_is_ignored() -> None:
    assert [record.offset for record in iter_records(_log()[:-1], from_offset=15)] == [15]


def test_batch_with_wrong_checksum_is_rejected() -> None:
    data = bytearray(_log())
    data[-1] ^= 1
    records = iter_records(data, from_offset=15)
    assert next(records).offset == 15
    with pytest.raises(CorruptBatch, match="offset 17"):
        next(records)
