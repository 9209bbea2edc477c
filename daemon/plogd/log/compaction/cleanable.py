"""Which part of a log can be compacted, and whether that is worthwhile.

Compaction begins when the part that was written since the last compaction, the *dirty* part, has
the share ``min.cleanable.dirty.ratio`` of the log, or when its oldest record is older than
``max.compaction.lag.ms``. It ends where records are younger than ``min.compaction.lag.ms``, where a
transaction is open, and before the first segment that is not sealed.

Pure. Source: Kafka 3.9 LogCleanerManager.cleanableOffsets, LogToClean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plogd.log.log import Log
from plogd.log.segment.log_segment import LogSegment


class Cleanable(NamedTuple):
    """The cleanable part of a log: `segments` from its beginning. The last ones are dirty."""

    segments: Sequence[LogSegment]
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int

    @property
    def dirty_ratio(self) -> float:
        """The share of the dirty bytes."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def dirty_segments(self) -> Sequence[LogSegment]:
        """The segments that were written since the last compaction, oldest first."""
        count = 0
        for segment, following in zip(self.segments, self.segments[1:], strict=False):
            if following.base_offset > self.first_dirty_offset:
                break
            assert segment.base_offset <= self.first_dirty_offset
            count += 1
        return self.segments[count:]


def cleanable_part(log: Log, *, checkpointed_offset: int | None, now_ms: int) -> Cleanable:
    """Return the part of `log` that can be compacted; it has no segments if nothing can be.

    `checkpointed_offset` is the end of the part that was compacted last, or None; another value
    than an offset of the log counts as its beginning.
    """
    # Not the log start offset: a crash may undo a deletion of records, and a key that is not noted
    # could then come back.
    start = log.segments.first.base_offset
    first_dirty = start if checkpointed_offset is None else checkpointed_offset
    if not start <= first_dirty <= log.log_end_offset:
        first_dirty = start
    limit = min(log.last_stable_offset, log.unsynced.first_unsealed_offset)
    newest_ms = now_ms - log.config.min_compaction_lag_ms
    segments: list[LogSegment] = []
    clean_bytes = dirty_bytes = 0
    end_offset = first_dirty
    for segment in log.segments:
        following = log.segments.end_offset_of(segment, log.log_end_offset)
        if following > limit or segment is log.segments.active:
            break
        is_dirty = following > first_dirty
        # The timestamp may have to be read from the file system.
        if is_dirty and log.config.min_compaction_lag_ms and segment.largest_timestamp > newest_ms:
            break
        segments.append(segment)
        if is_dirty:
            dirty_bytes += segment.size_bytes
            end_offset = following
        else:
            clean_bytes += segment.size_bytes
    if not dirty_bytes:
        segments = []
    return Cleanable(segments, first_dirty, end_offset, clean_bytes, dirty_bytes)


def oldest_timestamp(segments: Sequence[LogSegment]) -> int | None:
    """Return the smallest timestamp of the segments' first batches; None without timestamps.

    Reads files. Raises OSError, CorruptMessage.
    """
    headers = [segment.records.header_at(0) for segment in segments]
    times = [one.max_timestamp for one in headers if one is not None and one.max_timestamp >= 0]
    return min(times, default=None)
