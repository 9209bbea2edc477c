"""Batches and segments for the tests of a log's parts."""

from __future__ import annotations

from collections.abc import Sequence

from plog.records.batch import Compression, parse_header, set_base_offset_and_epoch
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, encode_control_key, encode_end_txn_value
from plogd.log.segment.log_segment import LogSegment
from plogd.topic_config import TopicConfig

T0 = 1_700_000_000_000
"""A moment in 2023, in milliseconds."""

SMALL = TopicConfig(index_interval_bytes=300)
"""Settings with which a few batches create several index entries."""


def client_batch(
    count: int = 1,
    *,
    timestamp: int = T0,
    timestamps: Sequence[int] = (),
    key: bytes | None = b"key",
    value: bytes = b"value",
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> memoryview:
    """Return a batch as a producer sends it, in memory that a log may overwrite."""
    times = timestamps or [timestamp] * count
    return memoryview(
        bytearray(
            build_batch(
                [Record(timestamp=time, key=key, value=value) for time in times],
                compression=compression,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                is_transactional=is_transactional,
                is_control=is_control,
            )
        )
    )


def marker_batch(
    offset: int,
    control_type: ControlType = ControlType.COMMIT,
    *,
    value: bytes = encode_end_txn_value(4),
    epoch: int = 0,
    compression: Compression = Compression.NONE,
    producer_id: int = 7,
    producer_epoch: int = 1,
) -> bytes:
    """Return a batch with a transaction marker of a producer, as a leader writes it."""
    record = Record(timestamp=T0, key=encode_control_key(control_type), value=value)
    return build_batch(
        [record],
        base_offset=offset,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=epoch,
    )


def append(segment: LogSegment, batch: memoryview, offset: int, leader_epoch: int = 0) -> int:
    """Append a client's batch at `offset`; return the offset after it."""
    set_base_offset_and_epoch(batch, 0, offset, leader_epoch)
    header = parse_header(batch)
    segment.append(
        batch,
        last_offset=header.last_offset,
        max_timestamp=header.max_timestamp,
        offset_of_max_timestamp=header.last_offset,
    )
    return header.next_offset


def next_offset(segment: LogSegment) -> int:
    """Return the offset after the last batch; the base offset of an empty segment."""
    last_indexed = segment.find_offset(segment.indexes.last_offset_entry.offset)
    if last_indexed is None:
        return segment.base_offset
    *_, last = segment.records.places_from(last_indexed.position)
    return last.last_offset + 1


def fill(
    segment: LogSegment,
    batches: int,
    *,
    records: int = 1,
    value_bytes: int = 100,
    step_ms: int = 10,
    start_ms: int = T0,
) -> int:
    """Append `count` batches, `step_ms` apart; return the offset after them."""
    offset = next_offset(segment)
    for number in range(batches):
        batch = client_batch(
            records, timestamp=start_ms + number * step_ms, value=b"v" * value_bytes
        )
        offset = append(segment, batch, offset)
    return offset
