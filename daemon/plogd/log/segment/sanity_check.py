"""Check the indexes of a segment that is loaded without recovery.

A sealed segment, or a log that was stopped cleanly, is not read again at startup. This check reads
only a few bytes: the sizes and the first and last entries of the indexes, and the batches to which
the last entries lead. recovery/log_recovery.py calls it in its job, and rebuilds the indexes of a
segment that fails it.

Source: Kafka 3.9 LogSegment.sanityCheck.
"""

from __future__ import annotations

from plog.errors import CorruptMessage
from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.time_index import NO_TIMESTAMP


def sanity_check(segment: LogSegment) -> int:
    """Check the indexes against the records, and return the offset after the last batch.

    Opens both indexes and costs three or four preads. Raises OSError, or CorruptIndex if the
    indexes clearly do not match; the segment then needs recovery.
    """
    segment.indexes.sanity_check(segment.size_bytes)
    try:
        return _check_last_time_entry(segment)
    except CorruptMessage as error:
        raise CorruptIndex(f"an index points to damaged bytes: {error}") from error


def _check_last_time_entry(segment: LogSegment) -> int:
    """Check the last time index entry, on which retention relies, against the batches."""
    latest, next_offset = segment.indexes.maximum, segment.base_offset
    path = segment.records_file.path
    for _, header in segment.records.batches_from(segment.indexes.last_offset_entry.position):
        next_offset = header.next_offset
        if header.max_timestamp > latest.timestamp:
            raise CorruptIndex(f"{path}: the last entry of the time index is missing")
    if latest.timestamp != NO_TIMESTAMP:
        found = segment.records.header_at(segment.position_of(latest.offset))
        if found is None or found.max_timestamp != latest.timestamp:
            raise CorruptIndex(f"{path}: no batch matches the time index entry {latest}")
    return next_offset
