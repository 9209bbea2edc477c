"""Select the segments of a log that retention may delete.

This module only computes: `deletable_segments` receives facts about the segments, and returns the
oldest segments that may be deleted. retention.py removes them from the log, and deletion.py deletes
their files. The task ``log-retention`` in tasks.py starts each pass over all logs. Without
``delete`` in ``cleanup.policy``, only segments below the log start offset are deleted.

Source: Kafka 3.9 UnifiedLog.deletableSegments; the Kafka paper (NetDB 2011), section 3.1. Kafka may
select the active segment and rolls it while deleting. Here, retention.py first rolls an active
segment that has expired and is not empty, so this function never selects the active one.
Invariant: the active segment and every segment with an offset >= the high watermark are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plogd.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentInfo:
    """The facts about a segment on which retention depends; `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """``retention.ms`` and ``retention.bytes`` of one topic; -1 means no limit."""

    retention_ms: int
    retention_bytes: int

    @classmethod
    def of(cls, config: TopicConfig) -> RetentionPolicy:
        """Return a topic's policy, without limits unless ``cleanup.policy`` contains ``delete``."""
        if not config.deletes_old_segments:
            return KEEP_EVERYTHING
        return cls(retention_ms=config.retention_ms, retention_bytes=config.retention_bytes)


KEEP_EVERYTHING = RetentionPolicy(retention_ms=-1, retention_bytes=-1)
"""Deletes only segments below the log start offset."""


def deletable_segments(
    segments: Sequence[SegmentInfo],
    policy: RetentionPolicy,
    *,
    now_ms: int,
    end_offset: int,
    log_start_offset: int,
) -> list[SegmentInfo]:
    """Return the longest prefix of `segments` that retention may delete, oldest first.

    Records from `end_offset` on, the last stable offset, are kept.

    >>> four = [
    ...     SegmentInfo(base_offset=i, end_offset=i + 1, size_bytes=100, max_timestamp_ms=i)
    ...     for i in range(4)
    ... ]
    >>> keep_200 = RetentionPolicy(retention_ms=-1, retention_bytes=200)
    >>> deletable = deletable_segments(
    ...     four, keep_200, now_ms=9, end_offset=4, log_start_offset=0
    ... )
    >>> [segment.base_offset for segment in deletable]
    [0, 1]
    """
    excess_bytes = sum(segment.size_bytes for segment in segments) - policy.retention_bytes
    deletable: list[SegmentInfo] = []
    for segment in segments[:-1]:  # The last segment is active.
        if segment.end_offset > end_offset:
            break  # Retention must not delete uncommitted records.
        # The largest timestamp decides, because a segment can only be deleted as a whole.
        expired = 0 <= policy.retention_ms < now_ms - segment.max_timestamp_ms
        # As in Kafka, at least retention.bytes remain: the setting is not an upper limit.
        oversize = policy.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        before_start = segment.end_offset <= log_start_offset
        if not (expired or oversize or before_start):
            break  # Deleting a later segment would leave a gap in the log.
        deletable.append(segment)
        excess_bytes -= segment.size_bytes
    assert all(segment.end_offset <= end_offset for segment in deletable)
    return deletable
