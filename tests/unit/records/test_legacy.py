"""plog/records/legacy.py: message sets of kafka-python, and rules for offsets and timestamps."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.records.batch import Compression, CorruptRecords, TimestampType, parse_header
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.compression import compress
from plog.records.legacy import (
    LegacyBatch,
    correct_lz4_header,
    read_legacy_batch,
    upgrade,
    upgrade_all,
)
from plog.records.reader import iter_records
from tests.corpus import legacy as corpus

LOG_APPEND_TIME = 0x08


def message(
    magic: int,
    offset: int,
    *,
    timestamp: int = -1,
    key: bytes | None = None,
    value: bytes | None = None,
    attributes: int = 0,
) -> bytes:
    """Return a message in the layout of the table in legacy.py."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    magic: int, offset: int, inner: bytes, codec: Compression = Compression.GZIP, **fields: Any
) -> bytes:
    attributes = fields.pop("attributes", 0) | codec
    return message(magic, offset, value=compress(codec, inner), attributes=attributes, **fields)


def read_all(data: bytes) -> list[LegacyBatch]:
    batches = []
    position = 0
    while position < len(data):
        batches.append(read_legacy_batch(data, position))
        position += batches[-1].size_bytes
    return batches


def upgraded(batches: Sequence[LegacyBatch]) -> list[Record]:
    return list(iter_records(b"".join(upgrade(batches))))


@pytest.mark.parametrize("name", corpus.names())
def test_messages_of_kafka_python_are_converted(name: str) -> None:
    magic = int(name.split("-")[1])
    batches = read_all(corpus.load(name))
    assert [r for batch in batches for r in batch.records] == corpus.records(magic)
    assert {batch.magic for batch in batches} == {magic}
    assert upgraded(batches) == corpus.records(magic)
    [new] = upgrade(batches)
    assert parse_header(new).compression.name.lower() == name.split("-")[2]


def test_corpus_has_every_codec_of_both_magics() -> None:
    assert len(corpus.names()) == 8


def test_corpus_has_lz4_with_wrong_checksum_of_old_producers() -> None:
    value = read_wrapped_value(corpus.load("magic-0-lz4"))
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(value)
    assert lz4.frame.decompress(correct_lz4_header(value))


def read_wrapped_value(data: bytes) -> bytes:
    return data[26:]  # Magic 0 with a null key.


def test_wrong_lz4_checksum_is_rejected_in_magic_1() -> None:
    frame = bytearray(compress(Compression.LZ4, message(1, 0)))
    frame[6] ^= 0xFF
    data = message(1, 5, value=bytes(frame), attributes=Compression.LZ4)
    with pytest.raises(CorruptRecords):
        read_legacy_batch(data)


@pytest.mark.parametrize("store_size", [False, True])
def test_corrected_lz4_header_equals_librarys(store_size: bool) -> None:
    frame = lz4.frame.compress(b"plog" * 100, store_size=store_size)
    checksum_at = 14 if store_size else 6
    broken = bytearray(frame)
    broken[checksum_at] ^= 0x5A
    assert correct_lz4_header(bytes(broken)) == frame


def test_inner_offsets_are_relative_in_magic_1() -> None:
    inner = message(1, 0, value=b"a") + message(1, 4, value=b"b")
    batch = read_legacy_batch(wrapper(1, 104, inner))
    assert [record.offset for record in batch.records] == [100, 104]


def test_inner_offsets_are_absolute_in_magic_0() -> None:
    inner = message(0, 100, value=b"a") + message(0, 104, value=b"b")
    batch = read_legacy_batch(wrapper(0, 104, inner))
    assert [record.offset for record in batch.records] == [100, 104]


def test_wrapper_at_offset_0_keeps_inner_offsets() -> None:
    inner = message(1, 0) + message(1, 1)
    assert [r.offset for r in read_legacy_batch(wrapper(1, 0, inner)).records] == [0, 1]


def test_log_append_time_of_wrapper_applies_to_inner_messages() -> None:
    inner = message(1, 0, timestamp=11) + message(1, 1, timestamp=12)
    data = wrapper(1, 1, inner, timestamp=99, attributes=LOG_APPEND_TIME)
    batch = read_legacy_batch(data)
    assert [record.timestamp for record in batch.records] == [99, 99]
    [new] = upgrade([batch])
    assert parse_header(new).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in iter_records(new)] == [99, 99]


def test_inner_messages_keep_their_create_times() -> None:
    inner = message(1, 0, timestamp=11) + message(1, 1, timestamp=12)
    batch = read_legacy_batch(wrapper(1, 1, inner, timestamp=99))
    assert [record.timestamp for record in batch.records] == [11, 12]


def test_single_messages_of_one_kind_share_batch() -> None:
    data = (
        message(0, 0)
        + message(0, 1)
        + message(1, 2, timestamp=5)
        + message(1, 3, timestamp=7, attributes=LOG_APPEND_TIME)
        + message(1, 4, timestamp=7, attributes=LOG_APPEND_TIME)
        + message(1, 5, timestamp=8, attributes=LOG_APPEND_TIME)
        + wrapper(1, 6, message(1, 0, timestamp=1))
        + message(1, 7, timestamp=5)
    )
    headers = [parse_header(batch) for batch in upgrade(read_all(data))]
    assert [(h.base_offset, h.records_count) for h in headers] == [
        (0, 2), (2, 1), (3, 2), (5, 1), (6, 1), (7, 1),
    ]  # fmt: skip
    times = [(r.offset, r.timestamp) for r in upgraded(read_all(data))]
    assert times == [(0, -1), (1, -1), (2, 5), (3, 7), (4, 7), (5, 8), (6, 1), (7, 5)]


def test_batch_of_single_messages_is_limited_in_size() -> None:
    data = b"".join(message(0, offset, value=bytes(1000)) for offset in range(300))
    batches = list(upgrade(read_all(data)))
    assert len(batches) > 3
    assert all(len(batch) < 80_000 for batch in batches)


def test_offsets_too_far_apart_for_one_batch_are_kept() -> None:
    data = message(0, 1) + message(0, 2**31 + 5)
    assert [record.offset for record in upgraded(read_all(data))] == [1, 2**31 + 5]


def test_decreasing_offsets_are_rejected() -> None:
    with pytest.raises(CorruptRecords, match="offset 3 follows 4"):
        list(upgrade(read_all(message(0, 4) + message(0, 3))))


def test_wrapper_with_offsets_too_far_apart_is_rejected() -> None:
    # Found by the fuzzer: the deltas of a batch are int32.
    apart = message(0, 0) + message(0, 1 << 31)
    with pytest.raises(CorruptRecords, match="offsets 0 to 2147483648"):
        list(upgrade(read_all(wrapper(0, 1 << 31, apart))))
    assert len(upgraded(read_all(message(0, 0) + message(0, 1 << 31)))) == 2


def test_truncated_last_message_of_wrapper_is_ignored() -> None:
    inner = message(0, 7, value=b"whole") + message(0, 8, value=b"cut")[:-1]
    assert [r.value for r in read_legacy_batch(wrapper(0, 7, inner)).records] == [b"whole"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (message(0, 0)[:-1], "no complete message at byte 0 of 25"),
        (b"\0" * 40, "14 bytes|invalid size of 0 bytes"),
        (message(2, 0), "has magic 2, not 0 or 1"),
        (message(0, 0, attributes=4), "unsupported compression type 4"),
        (message(0, 0, attributes=1), "has no value"),
        (wrapper(1, 9, message(0, 0)), "contains a message with magic 0"),
        (wrapper(0, 9, wrapper(0, 9, message(0, 9))), "compression gzip"),
        (wrapper(1, 9, b""), "does not contain any messages"),
        (wrapper(1, 9, message(1, 10)), "contains relative offset 10"),
        (wrapper(0, 9, message(0, 9) + message(0, 9)), "offset 9 follows 9"),
        (message(0, 0, value=b"not gzip", attributes=1), "gzip"),
    ],
)
def test_invalid_message_is_rejected(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptRecords, match=problem):
        read_legacy_batch(data)


@given(st.integers(0, 10_000), st.integers(1, 255), st.sampled_from(corpus.names()))
def test_changed_byte_is_detected_except_in_offset(at: int, flip: int, name: str) -> None:
    data = bytearray(corpus.load(name))
    data[8 + at % (read_legacy_batch(data).size_bytes - 8)] ^= flip
    with pytest.raises(CorruptRecords):
        read_legacy_batch(data)


_optional_bytes = st.none() | st.binary(max_size=50)


@given(
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from([Compression.NONE, Compression.GZIP, Compression.SNAPPY]),
    base_offset=st.integers(1, 2**40),
    contents=st.lists(
        st.tuples(st.integers(-1, 2**45), _optional_bytes, _optional_bytes, st.integers(1, 9)),
        min_size=1,
        max_size=8,
    ),
)
def test_records_survive_conversion(
    magic: int,
    codec: Compression,
    base_offset: int,
    contents: list[tuple[int, bytes | None, bytes | None, int]],
) -> None:
    expected: list[Record] = []
    offset = base_offset
    for timestamp, key, value, gap in contents:
        expected.append(Record(offset, timestamp if magic else -1, key, value))
        offset += gap
    shift = base_offset if magic and codec else 0
    data = b"".join(
        message(magic, r.offset - shift, timestamp=r.timestamp, key=r.key, value=r.value)
        for r in expected
    )
    if codec:
        data = wrapper(magic, expected[-1].offset, data, codec)
    batches = read_all(data)
    assert [record for batch in batches for record in batch.records] == expected
    assert upgraded(batches) == expected


def test_fetch_response_with_mixed_formats_is_converted() -> None:
    old = message(0, 5, value=b"a") + wrapper(1, 7, message(1, 0, value=b"b") + message(1, 1))
    new = build_batch([Record(timestamp=3, value=b"c")], base_offset=9)
    data = old + new + message(1, 12, timestamp=4, value=b"d")
    whole = list(iter_records(b"".join(upgrade_all(data))))
    assert [(x.offset, x.value) for x in whole] == [
        (5, b"a"),
        (6, b"b"),
        (7, None),
        (9, b"c"),
        (12, b"d"),
    ]


@pytest.mark.parametrize("kept", [0, 3, 20, 33])
def test_partial_last_message_of_fetch_is_ignored(kept: int) -> None:
    data = message(0, 5, value=b"a") + message(1, 6, value=b"b")[:kept]
    assert len(list(iter_records(b"".join(upgrade_all(data))))) == 1


def test_unknown_magic_in_fetch_is_rejected() -> None:
    with pytest.raises(CorruptRecords):
        list(upgrade_all(message(1, 5, value=b"a") + bytes(16) + b"\x02" + bytes(60)))
