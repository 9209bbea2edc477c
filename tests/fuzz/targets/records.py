"""The records of a batch: decoding and scanning agree on the records and on what they refuse.

The first byte is the number of records that the header claims, the second its attributes; the rest
are the uncompressed records.
"""

from __future__ import annotations

from collections.abc import Iterator

from plog.errors import InvalidTimestamp
from plog.records.batch import BatchHeader, CorruptRecords, TimestampType
from plog.records.codec import Record, decode_records, encode_records, walk_records
from tests.fuzz.target import Target

_LOG_APPEND_TIME_BIT = 0x08


def fuzz(data: bytes) -> None:
    """Decode and scan the records, and encode them again."""
    if len(data) < 2:
        return
    header = _header(data[0], data[1] & _LOG_APPEND_TIME_BIT)
    payload = data[2:]
    try:
        records = decode_records(payload, header)
    except CorruptRecords:
        assert _is_refused_by_a_walk(payload, header)
        return
    walked = [tuple(head) for head in walk_records(payload, header)]
    assert walked == [(one.offset, one.timestamp, one.key is not None) for one in records]
    assert len(records) == header.records_count
    try:
        again = encode_records(records, header.base_offset, header.base_timestamp)
    except InvalidTimestamp:
        return
    assert decode_records(again, header) == records


def _header(count: int, attributes: int) -> BatchHeader:
    fields = (100, 0, 0, 2, 0, attributes, 1 << 20, 1_000, 2_000, -1, -1, -1, count)
    header = BatchHeader(*fields)
    assert (header.timestamp_type is TimestampType.LOG_APPEND_TIME) == bool(attributes)
    return header


def _is_refused_by_a_walk(payload: bytes, header: BatchHeader) -> bool:
    try:
        for _ in walk_records(payload, header):
            pass
    except CorruptRecords:
        return True
    return False


def _seeds() -> Iterator[bytes]:
    some = [
        Record(timestamp=1_000, key=b"k", value=b"v" * 200, headers=(("h", b"1"), ("h", None))),
        Record(timestamp=1_000_000, key=None, value=None),
        Record(timestamp=0, key=b"", value=b"", headers=(("", b""),)),
    ]
    for count in range(len(some) + 1):
        encoded = encode_records(some[:count], 100, 1_000)
        yield bytes([count, 0]) + encoded
        yield bytes([count, _LOG_APPEND_TIME_BIT]) + encoded
    yield b"\xff\0" + encode_records([Record()] * 255, 100, 1_000)


# A header of two bytes becomes a tuple with a string, which takes 120 bytes.
TARGET = Target(name="records", fuzz=fuzz, seeds=_seeds, memory=(400, 50_000))
