"""From a timestamp to a record of a log: the segments' time indexes, then one batch.

May read cold data from disk and decompress a batch, so it is a job's work on a big log; ListOffsets
asks for it (replica/offset_lookup.py). Source: Kafka 3.9 UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from plogd.log.log import Log
from plogd.log.time_index import TimestampAndOffset


def offset_for_timestamp(log: Log, timestamp_ms: int) -> TimestampAndOffset | None:
    """The first record whose timestamp is at least `timestamp_ms`, or None.

    Raises KafkaStorageError, CorruptMessage, OSError.
    """
    if log.offline or log.closed:
        raise log.not_open()
    for segment in list(log.segments):  # A job must not stumble over a roll or retention.
        if segment.max_timestamp >= timestamp_ms:
            found = segment.find_offset_by_timestamp(timestamp_ms, log.log_start_offset)
            if found is not None:
                return found
    return None


def max_timestamp_offset(log: Log) -> TimestampAndOffset | None:
    """The first record that carries the log's largest timestamp, or None if it is empty."""
    start = log.log_start_offset
    latest = max(segment.max_timestamp_from(start) for segment in list(log.segments))
    return offset_for_timestamp(log, latest) if latest >= 0 else None
