"""Determine whether a log needs a new segment, create it, and reject oversized batches.

Used by log.py, which writes synchronously, and by disk/slow_disk_writes.py, which writes in jobs.

Source: Kafka 3.9 LocalLog.append, LocalLog.roll; docs/architecture.md, rule R15.
"""

from __future__ import annotations

from plog.errors import RecordListTooLarge
from plog.types import TopicPartition
from plogd.log.batch_validator import ValidatedBatch
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files
from plogd.topic_config import TopicConfig


def check_fits(topic_partition: TopicPartition, nbytes: int, config: TopicConfig) -> None:
    """Raise RecordListTooLarge if a batch of this size exceeds ``segment.bytes``."""
    # As in Kafka's UnifiedLog: a batch never spans two segments.
    if nbytes > config.segment_bytes:
        raise RecordListTooLarge(
            f"{topic_partition}: a batch of {nbytes} bytes does not fit in a segment; the limit is "
            f"segment.bytes={config.segment_bytes}"
        )


def must_roll(
    segment: LogSegment, batch: ValidatedBatch, last_offset: int, config: TopicConfig, now_ms: int
) -> bool:
    """Return whether the batch needs a new segment. Raises OSError."""
    return segment.should_roll(config, len(batch.view), batch.max_timestamp, last_offset, now_ms)


def make_successor(
    files: Files, directory: str, old: LogSegment, base_offset: int, config: TopicConfig
) -> LogSegment:
    """Create and return a segment at `base_offset`, where `old` ends.

    If this raises, appends can continue in `old`. Raises OSError.
    """
    # As in Kafka's LocalLog.roll, before the new segment exists.
    old.on_become_inactive()
    return LogSegment.create(files, directory, base_offset, config)
