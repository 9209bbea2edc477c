"""Delete the oldest records of one log: segments that retention selects, or records on request.

retention_policy.py selects the segments; this module rolls an expired active segment, removes the
selected segments from the log, and advances the log start offset. deletion.py deletes the files
later. Called on the reactor's thread, through `Log`.

Source: Kafka 3.9 UnifiedLog.deleteOldSegments, UnifiedLog.maybeIncrementLogStartOffset.
"""

from __future__ import annotations

from typing import Protocol

from plog.errors import KafkaStorageError, OffsetOutOfRange
from plog.types import TopicPartition
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.retention_policy import KEEP_EVERYTHING, RetentionPolicy, deletable_segments
from plogd.log.segment.segments import Segments
from plogd.ports import Report
from plogd.topic_config import TopicConfig


class RetainedLog(Protocol):
    """The parts of a `Log` that retention uses."""

    topic_partition: TopicPartition
    leader_epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    high_watermark: int

    @property
    def is_writable(self) -> bool:
        """Whether the log is open and online, and is not being truncated."""
        ...

    @property
    def config(self) -> TopicConfig:
        """The topic's settings."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """The end of the records whose transactions have ended."""
        ...

    @property
    def segments(self) -> Segments:
        """All segments; the active one receives appends."""
        ...

    @property
    def is_being_written(self) -> bool:
        """Whether a job may be writing to the active segment."""
        ...

    def roll_soon(self) -> None:
        """Start a new active segment, in a job if the disk is slow. Raises KafkaStorageError."""
        ...

    def drop_first_segments(self, count: int) -> None:
        """Remove the `count` oldest segments and delete their files later."""
        ...

    def not_open(self) -> KafkaStorageError:
        """Return the error for an operation on an offline or closed log."""
        ...


def apply_retention(log: RetainedLog, now_ms: int, report: Report) -> int:
    """Delete segments that retention selects or that precede the log start offset.

    Returns the number of deleted segments.
    """
    policy = RetentionPolicy.of(log.config)
    _roll_if_expired(log, policy, now_ms, report)
    # A failed roll may have taken the directory offline.
    if not log.is_writable:
        return 0
    return _delete_segments(log, policy, now_ms, report)


def delete_records_before(log: RetainedLog, offset: int, report: Report) -> None:
    """Advance the log start offset to `offset`, and delete the segments below it.

    Raises KafkaStorageError, or OffsetOutOfRange if `offset` is negative or above the high
    watermark.
    """
    if not log.is_writable:
        raise log.not_open()
    if not 0 <= offset <= log.high_watermark:
        raise OffsetOutOfRange(
            f"{log.topic_partition}: cannot delete records before offset {offset}: the high "
            f"watermark is {log.high_watermark}"
        )
    if offset > log.log_start_offset:
        _advance_start(log, offset)
        report(
            "deleted records in {topic_partition} before offset {offset}",
            topic_partition=log.topic_partition,
            offset=offset,
        )
    _delete_segments(log, KEEP_EVERYTHING, 0, report)


def _roll_if_expired(
    log: RetainedLog, policy: RetentionPolicy, now_ms: int, report: Report
) -> None:
    active = log.segments.active
    # Retention keeps segments that have records above the last stable offset, so a roll would not
    # free any space now.
    in_doubt = log.last_stable_offset < log.log_end_offset or log.is_being_written
    if not log.is_writable or in_doubt or not active.size_bytes:
        return
    if 0 <= policy.retention_ms < now_ms - active.largest_timestamp:
        try:
            # On a slow disk, the next retention pass deletes the old segment.
            log.roll_soon()
        except KafkaStorageError as error:  # Older segments are still deleted.
            report(
                "cannot roll a segment for retention: {error}",
                error=str(error),
                topic_partition=log.topic_partition,
            )


def _delete_segments(log: RetainedLog, policy: RetentionPolicy, now_ms: int, report: Report) -> int:
    deletable = deletable_segments(
        log.segments.infos(log.log_end_offset),
        policy,
        now_ms=now_ms,
        end_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
    )
    if deletable:
        _advance_start(log, max(log.log_start_offset, deletable[-1].end_offset))
        report(
            "deleted {count} segments from {topic_partition}; the log start offset is now {offset}",
            count=len(deletable),
            topic_partition=log.topic_partition,
            offset=log.log_start_offset,
        )
        log.drop_first_segments(len(deletable))
    return len(deletable)


def _advance_start(log: RetainedLog, offset: int) -> None:
    log.log_start_offset = offset
    log.leader_epochs.truncate_from_start(offset)
