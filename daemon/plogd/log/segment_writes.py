"""Writing one batch to a log's active segment, or a new segment behind it: the file work alone.

What it means for the log is log.py's business, where appends are made at once, and lane_writes.py's
where a job makes them, on a thread of its own. Nothing here knows of offsets but what it is given.

Source: Kafka 3.9 LocalLog.append, LocalLog.roll.
"""

from __future__ import annotations

from plog.errors import RecordListTooLarge
from plog.types import TopicPartition
from plogd.log.batch_validator import ValidatedBatch
from plogd.log.log_segment import LogSegment
from plogd.ports import Files
from plogd.topic_config import TopicConfig


class HalfWritten(OSError):
    """Part of a batch stays in the file: nothing may be appended behind it."""


def check_fits(topic_partition: TopicPartition, nbytes: int, config: TopicConfig) -> None:
    """Raise RecordListTooLarge if no segment may hold a batch of this size."""
    if nbytes > config.segment_bytes:
        raise RecordListTooLarge(
            f"{topic_partition}: a batch of {nbytes} bytes does not fit into a segment of "
            f"{config.segment_bytes} (segment.bytes)"
        )


def must_roll(
    segment: LogSegment, batch: ValidatedBatch, last_offset: int, config: TopicConfig, now_ms: int
) -> bool:
    """Whether the batch belongs into a new segment. Raises OSError."""
    return segment.should_roll(config, len(batch.view), batch.max_timestamp, last_offset, now_ms)


def make_successor(
    files: Files, directory: str, old: LogSegment, base_offset: int, config: TopicConfig
) -> LogSegment:
    """A new segment behind `old`, which gets no more batches. Raises OSError."""
    old.on_become_inactive()
    return LogSegment.create(files, directory, base_offset, config)


def write_batch(segment: LogSegment, batch: ValidatedBatch, last_offset: int) -> None:
    """Append to the segment; on failure what was written of it is taken back.

    Raises OSError, and HalfWritten where even that fails.
    """
    size_before = segment.size_bytes
    try:
        first_offset = last_offset - batch.header.last_offset_delta
        segment.append(
            batch.view,
            last_offset,
            batch.max_timestamp,
            first_offset + batch.max_timestamp_offset_delta,
        )
    except OSError as error:
        reason = take_back(segment, size_before, error)
        if reason is error:
            raise
        raise reason from error


def take_back(segment: LogSegment, size_bytes: int, error: OSError) -> OSError:
    """Undo what an append that met `error` has left; `error`, or HalfWritten if that fails."""
    try:
        segment.truncate_to_size(size_bytes)
    except OSError:
        return HalfWritten(*error.args)
    return error
