"""Build complete record batches.

Producers, coordinators and the embedded metadata store build batches from records. The broker
rebuilds a batch if compression.type differs from the producer's codec. Source: KIP-98; Kafka 3.9
MemoryRecordsBuilder.
"""

from __future__ import annotations

from collections.abc import Sequence

from plog.errors import InvalidTimestamp
from plog.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_HEAD,
    HEADER_SIZE,
    HEADER_TAIL,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Compression,
    TimestampType,
)
from plog.records.codec import NO_OFFSET, RecordFields, encode_records
from plog.records.compression import OnStep, compress
from plog.records.crc32c import crc32c

_PIECE_BYTES = 1 << 20
"""Bytes that `rebuild_batch` copies in one step.

No other thread runs during a step: a single copy of 60 MB took 30 ms.
"""


def build_batch(
    records: Sequence[RecordFields],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Build a batch from `records`, which must not be empty; its offsets start at `base_offset`.

    A record with offset -1 gets the next offset; other records keep their offsets. With
    LOG_APPEND_TIME, all records get the latest timestamp, because the batch then has only one
    timestamp. Raises InvalidTimestamp for a timestamp below -1, ValueError for offsets that do not
    increase.
    """
    if not records:
        raise ValueError("cannot build a batch without records")
    timestamps = [record[1] for record in records]
    if min(timestamps) < -1:  # -1 means that the producer did not set a timestamp.
        raise InvalidTimestamp(f"timestamp {min(timestamps)} is negative")
    attributes = (
        compression
        | (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
    )
    # As in Kafka, the base is the first timestamp, not the lowest, so deltas can be negative.
    encoded = encode_records(records, base_offset, timestamps[0])
    payload = compress(compression, encoded, level)
    tail = HEADER_TAIL.pack(
        attributes,
        _last_offset_delta(records, base_offset),
        timestamps[0],
        max(timestamps),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    head = HEADER_HEAD.pack(
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(payload),
        partition_leader_epoch,
        MAGIC,
        crc32c(payload, crc32c(tail)),  # Chained, so that the parts need not be joined here.
    )
    return b"".join((head, tail, payload))


def rebuild_batch(
    header: BatchHeader,
    payload: bytes,
    *,
    compression: Compression,
    level: int | None,
    max_timestamp: int,
    on_step: OnStep | None = None,
) -> bytearray:
    """Return the batch with `header` in another codec; `payload` contains the uncompressed records.

    `on_step` is passed to `compress`.
    """
    attributes = header.attributes & ~COMPRESSION_MASK | compression
    # The base offset and base timestamp stay the same, so the records' deltas remain valid, and the
    # records need not be parsed.
    tail = HEADER_TAIL.pack(attributes, *header[6:8], max_timestamp, *header[9:])
    compressed = memoryview(compress(compression, payload, level, on_step=on_step))
    head = HEADER_HEAD.pack(
        header.base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(compressed),
        header.partition_leader_epoch,
        MAGIC,
        crc32c(compressed, crc32c(tail)),
    )
    # A bytearray, because the log writes the base offset into the batch in place.
    rebuilt = bytearray(head + tail)
    for start in range(0, len(compressed), _PIECE_BYTES):
        rebuilt += compressed[start : start + _PIECE_BYTES]
    return rebuilt


def _last_offset_delta(records: Sequence[RecordFields], base_offset: int) -> int:
    """Return the last record's offset delta, derived from the last explicit offset."""
    offsets = [record[0] for record in records]
    # Producers do not set offsets. For them, a loop would make `build_batch` take a sixth longer.
    if max(offsets) != NO_OFFSET:
        for following, offset in enumerate(reversed(offsets)):
            if offset != NO_OFFSET:
                return offset + following - base_offset
    return len(records) - 1
