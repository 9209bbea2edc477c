"""Check the indexes of a segment that is loaded without recovery.

A sealed segment, or a log that was stopped cleanly, is not read again at startup. This check reads
only a few bytes: the sizes and the first and last entries of the indexes, and the batches to which
the last entries lead. After a clean stop, it reads batches only at the end of the log: a log may
have thousands of segments. recovery/log_recovery.py calls it in its job, and rebuilds the indexes
of a segment that fails it.

Source: Kafka 3.9 LogSegment.sanityCheck.
"""

from __future__ import annotations

from plog.errors import CorruptMessage
from plog.records.batch import BatchHeader
from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.time_index import NO_TIMESTAMP


def sanity_check(segment: LogSegment, *, only_end: bool = False) -> int:
    """Check the indexes against the records, and return the offset after the last batch.

    Opens both indexes and costs three or four preads. With `only_end`, reads only the batches
    after the last index entry. Raises OSError, or CorruptIndex if the indexes clearly
    do not match; the segment then needs recovery.
    """
    check_indexes(segment)
    try:
        return _check_last_time_entry(segment, only_end)
    except CorruptMessage as error:
        raise CorruptIndex(f"an index points to damaged bytes: {error}") from error


def check_indexes(segment: LogSegment) -> None:
    """Check everything that can be checked without reading batches. Raises as `sanity_check`."""
    segment.indexes.sanity_check(segment.size_bytes)
    # Retention needs the largest timestamp, and must not wait for the disk to read it.
    _ = segment.indexes.maximum


def _check_last_time_entry(segment: LogSegment, only_end: bool) -> int:
    """Check the last time index entry, on which retention relies, against the batches."""
    latest, next_offset = segment.indexes.maximum, segment.base_offset
    path = segment.records_file.path
    read_from: int | None = None
    found: BatchHeader | None = None
    for _, header in segment.records.batches_from(segment.indexes.last_offset_entry.position):
        read_from = header.base_offset if read_from is None else read_from
        next_offset = header.next_offset
        if header.max_timestamp > latest.timestamp:
            raise CorruptIndex(f"{path}: the last entry of the time index is missing")
        if found is None and header.last_offset >= latest.offset >= read_from:
            found = header
    if latest.timestamp != NO_TIMESTAMP:
        is_earlier = read_from is not None and latest.offset < read_from
        if is_earlier and only_end:
            return next_offset
        if is_earlier:
            found = segment.records.header_at(segment.position_of(latest.offset))
        if found is None or found.max_timestamp != latest.timestamp:
            raise CorruptIndex(f"{path}: no batch matches the time index entry {latest}")
    return next_offset
