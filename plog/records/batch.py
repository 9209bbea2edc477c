"""Parse, validate and patch record batch headers, without access to the records.

Produce and fetch do not need anything else from a batch; reader.py reads the records. Positions are
byte positions in the caller's buffer; offsets are log offsets. Source: KIP-98; Kafka 3.9
DefaultRecordBatch.

== ======== ===================== =======================================================
at type     field
== ======== ===================== =======================================================
 0 int64    base offset
 8 int32    batch length          bytes after this field
12 int32    partition leader epoch
16 int8     magic                 2
17 uint32   crc                   CRC-32C of everything after this field
21 int16    attributes            0-2 compression, 3 log append time, 4 transactional,
                                  5 control, 6 base timestamp is a delete horizon (KIP-534)
23 int32    last offset delta
27 int64    base timestamp        ms
35 int64    max timestamp         ms; with bit 3 the timestamp of every record
43 int64    producer id           -1 none
51 int16    producer epoch
53 int32    base sequence
57 int32    records count
61          records               compressed as a whole
== ======== ===================== =======================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, TypeAlias

from plog.errors import (
    CorruptMessage,
    ErrorCode,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from plog.records.crc32c import crc32c

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC = 2
LOG_OVERHEAD = 12
"""Size of the base offset and batch length fields, which the batch length does not include."""
HEADER_SIZE = 61

BATCH_LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_PRODUCER_ID = -1
MAX_SEQUENCE = 0x7FFFFFFF
"""The largest sequence number; the next sequence number is 0."""

HEADER = Struct(">qiibIhiqqqhii")
HEADER_HEAD, HEADER_TAIL = Struct(">qiibI"), Struct(">hiqqqhii")
"""The header in two parts: the checksum only covers the second part."""
_INT16, _INT32, _UINT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">I"), Struct(">q")
_MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD


class CorruptBatch(CorruptMessage):
    """The bytes are not a record batch, or were changed after they were sent."""


class CorruptRecords(CorruptBatch):
    """The records in a batch violate the format. Sending them again will not help."""

    # Not retriable, unlike CORRUPT_MESSAGE: the batch matches its checksum, so it arrived intact.
    code = ErrorCode.INVALID_RECORD


class Compression(IntEnum):
    """The compression codec of a batch: the lowest three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_COMPRESSIONS = tuple(Compression)


class TimestampType(IntEnum):
    """The source of a batch's timestamps: the producer, or the broker that appended the batch."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The fields of a batch header, the 61 bytes before the records, in order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the complete batch, including the header."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record; compaction may have removed the record itself."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec. Raises UnsupportedCompressionType for an unknown number."""
        codec = self.attributes & COMPRESSION_MASK
        try:
            # Faster than a call of the enum.
            return _COMPRESSIONS[codec]
        except IndexError:
            raise UnsupportedCompressionType(f"compression type {codec} is not supported") from None

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the broker set the records' timestamps."""
        log_append_time = self.attributes & LOG_APPEND_TIME_BIT
        return TimestampType.LOG_APPEND_TIME if log_append_time else TimestampType.CREATE_TIME

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may remove the batch's tombstones and marker (KIP-534).

        None if compaction has not set it. It replaces the base timestamp.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def is_transactional(self) -> bool:
        """Whether the records belong to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether this is a control batch; see control.py."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer sent the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1 without an idempotent producer.

        >>> _example(base_sequence=2147483647, last_offset_delta=1).last_sequence
        0
        """
        if self.base_sequence < 0:
            return self.base_sequence
        # 0 follows 2147483647, as in Kafka's DefaultRecordBatch.incrementSequence.
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def parse_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`, without validating its fields.

    Raises CorruptBatch if fewer than 61 bytes follow.
    """
    # struct would count a negative position from the end of the data.
    if not 0 <= position <= len(data) - HEADER_SIZE:
        raise CorruptBatch(f"no complete batch header at byte {position} of {len(data)}")
    return BatchHeader._make(HEADER.unpack_from(data, position))


def read_size_and_magic(data: Buffer, position: int = 0) -> tuple[int, int]:
    """Return the size in bytes and the magic of the batch at `position`, which can have any magic.

    The size is not validated. Raises CorruptBatch if fewer than 17 bytes follow.
    """
    if not 0 <= position <= len(data) - MAGIC_POSITION - 1:
        raise CorruptBatch(f"no complete batch at byte {position} of {len(data)}")
    (length,) = _INT32.unpack_from(data, position + BATCH_LENGTH_POSITION)
    magic = data[position + MAGIC_POSITION]  # Read as unsigned, but magic is an int8.
    return length + LOG_OVERHEAD, magic - 0x100 if magic > 0x7F else magic


def iter_batches(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each complete batch.

    Checks what is necessary to find the next batch, but not the checksum. Raises CorruptBatch for
    an invalid size or magic, UnsupportedForMessageFormat for a batch with magic 0 or 1.
    """
    position, end = 0, len(data)
    while end - position > MAGIC_POSITION:
        size, magic = read_size_and_magic(data, position)
        # Checked before the size, because messages with magic 0 and 1 can be smaller than
        # a header.
        if magic in (0, 1):
            raise UnsupportedForMessageFormat(
                f"the batch at byte {position} has magic {magic}; only magic {MAGIC} is supported"
            )
        if magic != MAGIC or size < HEADER_SIZE:
            raise CorruptBatch(f"no record batch at byte {position}: magic {magic}, {size} bytes")
        # Brokers cut a fetch response at the maximum size, so the last batch can be incomplete.
        if size > end - position:
            return
        # `parse_header` would check the bounds again.
        yield position, BatchHeader._make(HEADER.unpack_from(data, position))
        position += size


def crc_is_valid(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the batch at `position`, which has `header`, matches its checksum."""
    end = position + header.size_bytes
    # The checksum does not cover the length, so a corrupt length would select the wrong bytes.
    if header.batch_length < _MIN_LENGTH or end > len(data):
        return False
    return crc32c(memoryview(data)[position + ATTRIBUTES_POSITION : end]) == header.crc


def set_base_offset_and_epoch(
    data: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Assign an offset and an epoch to the batch at `position`; the checksum stays valid."""
    # Both fields precede the checksum, which does not cover them, so that a broker can set them
    # cheaply.
    _INT64.pack_into(data, position, base_offset)
    _INT32.pack_into(data, position + LEADER_EPOCH_POSITION, leader_epoch)


def set_append_time(
    data: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int
) -> BatchHeader:
    """Set the broker's time for all records of a batch (message.timestamp.type=LogAppendTime).

    Returns the new header. The call computes the checksum of the entire batch.
    """
    # The records keep their timestamps: with this bit, readers use the largest timestamp instead.
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    _INT16.pack_into(data, position + ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(data, position + MAX_TIMESTAMP_POSITION, now_ms)
    covered = memoryview(data)[position + ATTRIBUTES_POSITION : position + header.size_bytes]
    crc = crc32c(covered)
    _UINT32.pack_into(data, position + CRC_POSITION, crc)
    return header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc)


def _example(**fields: int) -> BatchHeader:
    """Return a header for the doctests."""
    return BatchHeader._make(HEADER.unpack(bytes(HEADER_SIZE)))._replace(**fields)
