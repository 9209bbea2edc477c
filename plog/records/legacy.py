"""Read messages with magic 0 and 1, which Kafka wrote before 0.11, and convert them to magic 2.

The broker neither accepts nor stores these formats. They only occur in logs imported from Kafka and
in fetch responses from Kafka brokers.

A compressed message is a wrapper: its value is a message set. In magic 0, the offsets of the inner
messages are absolute. In magic 1, they are relative, and the wrapper's offset is the absolute
offset of the last inner message (KIP-31). Magic 1 added timestamps (KIP-32): a wrapper with log
append time sets the timestamp of all its messages.

== ===== ================ =====================================================
at type  field
== ===== ================ =====================================================
 0 int64 offset
 8 int32 message size     bytes after this field
12 uint32 crc             CRC-32 (not CRC-32C) of everything after this field
16 int8  magic            0 or 1
17 int8  attributes       0-2 compression, 3 log append time (magic 1)
18 int64 timestamp        ms, -1 none; magic 1 only
.. int32 key length, key, value length, value; a length of -1 means null
== ===== ================ =====================================================

Source: KIP-31, KIP-32, KIP-57; Kafka 3.9 LegacyRecord, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from plog.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    Buffer,
    Compression,
    CorruptRecords,
    TimestampType,
    read_size_and_magic,
)
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.compression import decompress
from plog.records.reader import MAX_DECOMPRESSED_BYTES

LEGACY_MAGICS = (0, 1)

_HEAD = Struct(">qiIbb")
_INT32, _INT64 = Struct(">i"), Struct(">q")
_CRC_END = 16
_MIN_SIZE = (26, 34)
"""Minimum size of a message, by magic, including the offset and size fields."""

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_FLAG = 0x08
_XXH_PRIME_1, _XXH_PRIME_2, _XXH_PRIME_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_XXH_PRIME_4, _XXH_PRIME_5 = 0x27D4EB2F, 0x165667B1

_BATCH_BYTES = 64 << 10
"""Approximate size of a batch that is built from single messages."""
_MAX_OFFSET_DELTA = 0x7FFFFFFF


class LegacyBatch(NamedTuple):
    """An entry of a log in an old format: a single message, or a wrapper with its messages."""

    magic: int
    compression: Compression
    timestamp_type: TimestampType
    records: tuple[Record, ...]
    size_bytes: int


def read_legacy_batch(
    data: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> LegacyBatch:
    """Return the entry at `position`, verified and decompressed, with absolute offsets.

    Raises CorruptRecords if it is not a message with magic 0 or 1, or is corrupt.
    """
    view = memoryview(data)
    message = _read_message(view, position)
    if message.compression is Compression.NONE:
        records: tuple[Record, ...] = (message.record,)
    else:
        records = tuple(_unwrap(message, max_bytes))
    return LegacyBatch(
        magic=message.magic,
        compression=message.compression,
        timestamp_type=message.timestamp_type,
        records=records,
        size_bytes=message.end - position,
    )


def upgrade(batches: Iterable[LegacyBatch]) -> Iterator[bytes]:
    """Yield the records of `batches` with the same offsets and timestamps, in batches of magic 2.

    A wrapper becomes a batch with the same codec; consecutive single messages share a batch. Raises
    CorruptRecords for offsets that do not increase.
    """
    waiting: list[Record] = []
    kind: tuple[int, ...] = ()
    waiting_bytes, previous = 0, -1
    for batch in batches:
        if batch.records[0].offset <= previous:
            raise CorruptRecords(f"offset {batch.records[0].offset} follows {previous}")
        previous = batch.records[-1].offset
        # Offset deltas in a batch are an int32. Only corrupt or hostile wrappers exceed the limit.
        if previous - batch.records[0].offset > _MAX_OFFSET_DELTA:
            raise CorruptRecords(
                f"a wrapper contains offsets {batch.records[0].offset} to {previous}, too many for"
                " a batch"
            )
        single = batch.compression is Compression.NONE
        # The kind of a wrapper is empty, so a wrapper always ends the batch of the messages before
        # it.
        next_kind = _kind(batch) if single else ()
        is_full = waiting_bytes >= _BATCH_BYTES
        if waiting and (
            next_kind != kind or is_full or previous - waiting[0].offset > _MAX_OFFSET_DELTA
        ):
            yield _build(waiting, Compression.NONE, TimestampType(kind[1]))
            waiting, waiting_bytes = [], 0
        if single:
            kind = next_kind
            waiting.extend(batch.records)
            waiting_bytes += batch.size_bytes
        else:
            yield _build(batch.records, batch.compression, batch.timestamp_type)
    if waiting:
        yield _build(waiting, Compression.NONE, TimestampType(kind[1]))


def upgrade_all(data: Buffer) -> Iterator[bytes]:
    """Yield the batches of a fetch response, with magic 0 and 1 converted to magic 2.

    The function stops before an incomplete entry, as `iter_batches` does. Raises CorruptBatch.
    """
    position = 0
    old: list[LegacyBatch] = []
    while len(data) - position > MAGIC_POSITION:
        size, magic = read_size_and_magic(data, position)
        if size > len(data) - position:
            break
        if magic in LEGACY_MAGICS:
            old.append(read_legacy_batch(data, position))
        elif size < HEADER_SIZE:  # Otherwise, a size of 0 would cause an endless loop.
            raise CorruptRecords(f"no record batch at byte {position}: magic {magic}, {size} bytes")
        else:
            yield from upgrade(old)
            old = []
            yield bytes(data[position : position + size])
        position += size
    yield from upgrade(old)


def _kind(batch: LegacyBatch) -> tuple[int, ...]:
    """Return a value that is equal for consecutive single messages that can share a batch."""
    # A batch with log append time has only one timestamp.
    log_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    timestamp = batch.records[0].timestamp if log_append_time else -1
    return (batch.magic, batch.timestamp_type, timestamp)


def _build(
    records: Iterable[Record], compression: Compression, timestamp_type: TimestampType
) -> bytes:
    rows = list(records)
    return build_batch(
        rows,
        base_offset=rows[0].offset,
        compression=compression,
        timestamp_type=timestamp_type,
    )


class _Message(NamedTuple):
    magic: int
    compression: Compression
    timestamp_type: TimestampType
    record: Record
    end: int


def _read_message(view: memoryview, position: int) -> _Message:
    # The magic is not known yet, so this is the smaller minimum.
    if position + _MIN_SIZE[0] > len(view):
        raise CorruptRecords(f"no complete message at byte {position} of {len(view)}")
    offset, size, crc, magic, attributes = _HEAD.unpack_from(view, position)
    end = position + LOG_OVERHEAD + size
    if magic not in LEGACY_MAGICS:
        raise CorruptRecords(f"the message at byte {position} has magic {magic}, not 0 or 1")
    if not position + _MIN_SIZE[magic] <= end <= len(view):
        raise CorruptRecords(
            f"the message at byte {position} of {len(view)} has an invalid size of {size} bytes"
        )
    if zlib.crc32(view[position + _CRC_END : end]) != crc:
        raise CorruptRecords(f"the message at byte {position} fails its checksum")
    codec = attributes & COMPRESSION_MASK
    if codec > Compression.LZ4:  # zstd requires magic 2 (KIP-110).
        raise CorruptRecords(
            f"the message at byte {position} (magic {magic}) has unsupported compression type"
            f" {codec}"
        )
    timestamp = -1
    position += _HEAD.size
    if magic:
        (timestamp,) = _INT64.unpack_from(view, position)
        position += _INT64.size
    key, position = _nullable(view, position, end)
    value, position = _nullable(view, position, end)
    if position != end:
        raise CorruptRecords(f"{end - position} bytes follow the message before byte {end}")
    # Magic 0 has no timestamps, so the bit has no meaning there.
    log_append_time = magic and attributes & LOG_APPEND_TIME_BIT
    # In a batch with magic 2, -1 is the only valid negative timestamp.
    return _Message(
        magic=magic,
        compression=Compression(codec),
        timestamp_type=TimestampType.LOG_APPEND_TIME
        if log_append_time
        else TimestampType.CREATE_TIME,
        record=Record(offset=offset, timestamp=max(timestamp, -1), key=key, value=value),
        end=end,
    )


def _nullable(view: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    if position + _INT32.size > end:
        raise CorruptRecords(f"the message ends before the length at byte {position}")
    (length,) = _INT32.unpack_from(view, position)
    position += _INT32.size
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptRecords(
            f"the key or value at byte {position} of {end} has an invalid length of {length} bytes"
        )
    return bytes(view[position : position + length]), position + length


def _unwrap(wrapper: _Message, max_bytes: int) -> Iterator[Record]:
    """Yield a wrapper's records. As in Kafka, a truncated last message is ignored."""
    value = wrapper.record.value
    if value is None:
        raise CorruptRecords("a compressed message has no value")
    # Producers that used magic 0 computed the header checksum incorrectly, which the library
    # rejects (KIP-57).
    if wrapper.magic == 0 and wrapper.compression is Compression.LZ4:
        value = correct_lz4_header(value)
    inner = _inner_messages(memoryview(decompress(wrapper.compression, value, max_bytes)), wrapper)
    if not inner:
        raise CorruptRecords("a compressed message does not contain any messages")
    # In magic 1, the wrapper has the offset of its last message (KIP-31).
    base_offset = 0
    # Some versions of librdkafka sent wrappers with offset 0.
    if wrapper.magic and wrapper.record.offset:
        base_offset = wrapper.record.offset - inner[-1].offset
        if base_offset < 0:
            raise CorruptRecords(
                f"the wrapper at offset {wrapper.record.offset} contains relative offset "
                f"{inner[-1].offset}"
            )
    previous = -1
    for record in inner:
        offset = record.offset + base_offset
        if offset <= previous:
            raise CorruptRecords(f"offset {offset} follows {previous} in a compressed message")
        previous = offset
        timestamp = record.timestamp
        if wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME:
            timestamp = wrapper.record.timestamp
        yield record._replace(offset=offset, timestamp=timestamp)


def _inner_messages(view: memoryview, wrapper: _Message) -> list[Record]:
    records: list[Record] = []
    position = 0
    while position + LOG_OVERHEAD <= len(view):
        (size,) = _INT32.unpack_from(view, position + _INT64.size)
        # A negative size does not mean a truncated message; `_read_message` raises an error for it.
        if size >= 0 and position + LOG_OVERHEAD + size > len(view):
            break
        message = _read_message(view, position)
        if message.magic != wrapper.magic or message.compression is not Compression.NONE:
            raise CorruptRecords(
                f"a wrapper with magic {wrapper.magic} contains a message with magic"
                f" {message.magic} and compression {message.compression.name.lower()}"
            )
        records.append(message.record)
        position = message.end
    return records


def correct_lz4_header(data: bytes) -> bytes:
    """Return an LZ4 frame with the correct header checksum."""
    if len(data) < 7 or not data.startswith(_LZ4_MAGIC):
        raise CorruptRecords("lz4: the data is not a frame")
    # Magic (4 bytes), two bytes of flags, and the content size if there is one.
    end = 6 + (8 if data[4] & _LZ4_CONTENT_SIZE_FLAG else 0)
    if len(data) <= end:
        raise CorruptRecords("lz4: the data is truncated")
    # Old producers included the magic by mistake (KIP-57).
    checksum = xxh32_short(data[4:end]) >> 8 & 0xFF
    return b"".join((data[:end], bytes((checksum,)), data[end + 1 :]))


def xxh32_short(data: bytes) -> int:
    """Return the xxHash-32, with seed 0, of fewer than 16 bytes, such as a frame header.

    >>> hex(xxh32_short(b"abc"))
    '0x32d153ff'
    """
    assert len(data) < 16
    value = _XXH_PRIME_5 + len(data)
    position = 0
    for position in range(0, len(data) - 3, 4):
        lane = int.from_bytes(data[position : position + 4], "little")
        value = _rotate(value + lane * _XXH_PRIME_3, 17) * _XXH_PRIME_4
    for byte in data[len(data) & ~3 :]:
        value = _rotate(value + byte * _XXH_PRIME_5, 11) * _XXH_PRIME_1
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * _XXH_PRIME_2 & 0xFFFFFFFF
    value = (value ^ value >> 13) * _XXH_PRIME_3 & 0xFFFFFFFF
    return value ^ value >> 16


def _rotate(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF
