"""The file operations of appends and rolls: all or nothing, whatever exception is raised.

Shared by log.py, which writes synchronously, and disk/lane_writes.py, which writes in a job on a
thread. They update offsets, epochs and producers after the write; if that fails, `remove_batch`
undoes the write.

Source: Kafka 3.9 LocalLog.append, LocalLog.roll; docs/architecture.md, rule R15. Invariant: after
any exception the segment and its indexes are unchanged, or HalfWritten is raised.
"""

from __future__ import annotations

from plog.errors import RecordListTooLarge
from plog.types import TopicPartition
from plogd.log.batch_validator import ValidatedBatch
from plogd.log.io_errors import HalfWritten
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files
from plogd.topic_config import TopicConfig


def check_fits(topic_partition: TopicPartition, nbytes: int, config: TopicConfig) -> None:
    """Raise RecordListTooLarge if a batch of this size exceeds ``segment.bytes``."""
    if nbytes > config.segment_bytes:
        raise RecordListTooLarge(
            f"{topic_partition}: a batch of {nbytes} bytes does not fit into a segment of "
            f"{config.segment_bytes} (segment.bytes)"
        )


def must_roll(
    segment: LogSegment, batch: ValidatedBatch, last_offset: int, config: TopicConfig, now_ms: int
) -> bool:
    """Whether the batch needs a new segment. Raises OSError."""
    return segment.should_roll(config, len(batch.view), batch.max_timestamp, last_offset, now_ms)


def make_successor(
    files: Files, directory: str, old: LogSegment, base_offset: int, config: TopicConfig
) -> LogSegment:
    """Return a new segment at `base_offset`, where `old` ends.

    After any exception, appends may continue in `old`. Raises OSError.
    """
    old.on_become_inactive()
    return LogSegment.create(files, directory, base_offset, config)


def write_batch(segment: LogSegment, batch: ValidatedBatch, first_offset: int) -> int:
    """Append `batch`, whose offsets begin at `first_offset`, and return its position in the file.

    If the append raises, no part of the batch remains, unless the error is HalfWritten.
    """
    view, header, max_timestamp, max_timestamp_delta, _ = batch
    position = segment.records.size_bytes
    try:
        return segment.append(
            view,
            first_offset + header.last_offset_delta,
            max_timestamp,
            first_offset + max_timestamp_delta,
        )
    except Exception as error:
        remove_batch(segment, position, error)
        raise


def remove_batch(segment: LogSegment, position: int, error: Exception) -> None:
    """Undo the write of the last batch, at `position`, because of `error`.

    Raises HalfWritten if that fails.
    """
    try:
        segment.truncate_to_size(position)
    except Exception as problem:
        raise HalfWritten(f"{error}; cannot remove part of a batch: {problem!r}") from error
