"""Find a record of a log by timestamp, using the segments' time indexes.

A lookup may read uncached data from the disk and decompress a batch, so it runs in jobs. Each
lookup is a generator that processes a limited number of batches or records per step. Between two
steps, other lookups can run, and the lookup can be abandoned. It opens each segment's files
separately, so that the reactor can concurrently append, roll, delete and close.

Called by replica/offset_lookup.py, on any thread. Source: Kafka 3.9
UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TypeAlias, TypeVar

from plog.errors import KafkaStorageError
from plog.records.batch import BatchHeader
from plog.records.codec import RecordHead, walk_records
from plog.records.reader import read_payload
from plogd.log.log import Log
from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.time_index import NO_TIMESTAMP, TimestampAndOffset

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""A lookup in progress: each `next` runs one step, and StopIteration contains the result."""

_BATCHES_PER_STEP = 256
_BATCH_MAX_BYTES = 64 << 20
"""Maximum uncompressed size of a batch that a lookup reads; the log may contain larger batches."""
_RECORDS_PER_STEP = 4096


def offset_for_timestamp(log: Log, timestamp_ms: int) -> Steps[TimestampAndOffset | None]:
    """Find the first record whose timestamp is at least `timestamp_ms`, or None.

    Raises KafkaStorageError, CorruptMessage, OSError.
    """
    # A copy, because the reactor may add and remove segments during the lookup.
    for segment in list(log.segments):
        if segment.max_timestamp < timestamp_ms:
            continue
        look_up = partial(
            find_in_segment, timestamp=timestamp_ms, starting_offset=log.log_start_offset
        )
        found = yield from _read(log, segment, look_up)
        if found is not None:
            return found
    return None


def max_timestamp_offset(log: Log) -> Steps[TimestampAndOffset | None]:
    """Find the first record with the log's largest timestamp, or None if the log is empty.

    Raises KafkaStorageError, CorruptMessage, OSError.
    """
    start, latest = log.log_start_offset, -1
    for segment in list(log.segments):
        if segment.base_offset >= start:
            latest = max(latest, segment.max_timestamp)
        # The log starts inside this segment, whose largest timestamp may belong to a deleted
        # record.
        elif segment.max_timestamp > latest:
            look_up = partial(max_timestamp_from, starting_offset=start)
            found = yield from _read(log, segment, look_up)
            if found is not None:
                latest = max(latest, found)
    if latest < 0:
        return None
    return (yield from offset_for_timestamp(log, latest))


def _read(
    log: Log, segment: LogSegment, look_up: Callable[[LogSegment], Steps[T]]
) -> Steps[T | None]:
    """Run `look_up` in `segment`; return None if retention has deleted the segment.

    Raises KafkaStorageError, after which the client tries again, if the segment was compacted.
    """
    if log.offline or log.closed:
        raise log.not_open()
    try:
        at = segment.open_for_reading()
    except FileNotFoundError:
        if segment in log.segments:  # The segment was not deleted: its file is missing.
            raise
        if segment.base_offset >= log.segments.first.base_offset:
            what = f"cannot look up a time in {log.topic_partition}"
            raise KafkaStorageError(f"{what}: the log was compacted meanwhile; try again") from None
        return None
    try:
        return (yield from look_up(at))
    finally:
        at.close()
        # `at` is a copy; the check for suspect indexes looks at the log's own segments.
        if at.index_is_suspect:
            segment.index_is_suspect = True


def find_in_segment(
    segment: LogSegment, timestamp: int, starting_offset: int
) -> Steps[TimestampAndOffset | None]:
    """Find the first record at or after `starting_offset` with at least this timestamp.

    Raises CorruptMessage.
    """
    position = _position_before(segment, timestamp, starting_offset)
    for number, (batch_position, header) in enumerate(segment.records.batches_from(position), 1):
        if not number % _BATCHES_PER_STEP:
            yield
        # Batches are skipped by header, so that usually only the one with the record is
        # decompressed.
        if header.max_timestamp < timestamp or header.last_offset < starting_offset:
            continue
        for count, record in enumerate(_record_heads(segment, batch_position, header), 1):
            if record.timestamp >= timestamp and record.offset >= starting_offset:
                return TimestampAndOffset(
                    record.timestamp, record.offset, header.partition_leader_epoch
                )
            if not count % _RECORDS_PER_STEP:
                yield
    return None


def max_timestamp_from(segment: LogSegment, starting_offset: int) -> Steps[int]:
    """Return the largest timestamp at or after `starting_offset`; -1 if no record has a timestamp.

    Reads batch headers unless the offset is at the start of the segment. Raises CorruptMessage.
    """
    if starting_offset <= segment.base_offset:
        return segment.max_timestamp
    latest = -1
    batches = segment.records.batches_from(segment.position_of(starting_offset))
    for number, (position, header) in enumerate(batches, 1):
        if not number % _BATCHES_PER_STEP:
            yield
        if header.base_offset >= starting_offset:
            latest = max(latest, header.max_timestamp)
            continue
        # The first batch also contains records below `starting_offset`, so its records are read.
        for count, record in enumerate(_record_heads(segment, position, header), 1):
            if record.offset >= starting_offset:
                latest = max(latest, record.timestamp)
            if not count % _RECORDS_PER_STEP:
                yield
    return latest


def _position_before(segment: LogSegment, timestamp: int, starting_offset: int) -> int:
    """Return a byte position before which all records are too old or below `starting_offset`."""
    try:
        hint = segment.indexes.look_up_time(timestamp)
        if hint.offset > starting_offset and hint.timestamp != NO_TIMESTAMP:
            place = segment.find_offset(hint.offset)
            # A damaged entry could lead past the record, so its timestamp must match the batch.
            header = None if place is None else segment.records.header_at(place.position)
            if header is not None and header.max_timestamp == hint.timestamp:
                return segment.position_of(hint.offset)
            segment.index_is_suspect = True
    except CorruptIndex:
        segment.index_is_suspect = True
    return segment.position_of(starting_offset)


def _record_heads(segment: LogSegment, position: int, header: BatchHeader) -> Iterator[RecordHead]:
    """Yield the records of the batch at `position`, without keys and values."""
    data = segment.records.read(position, header.size_bytes)
    return walk_records(read_payload(data, 0, header, max_bytes=_BATCH_MAX_BYTES), header)
