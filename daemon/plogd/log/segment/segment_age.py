"""The age of the active segment, which decides when ``segment.ms`` requires a roll.

The age is the difference between the timestamps of the next and the first batch, so that a segment
spans at most ``segment.ms`` of record time, or ``max.compaction.lag.ms`` if that is less and the
log is compacted. If the first batch has no timestamp, the clock decides. Only an append rolls a
segment, as in Kafka: a log without appends keeps its active segment, and thus an uncompacted part.

Source: Kafka 3.9 LogSegment.shouldRoll, LogSegment.timeWaitedForRoll, LogConfig.maxSegmentMs.
"""

from __future__ import annotations

import zlib

from plog.errors import CorruptMessage
from plogd.log.segment.file_records import FileRecords
from plogd.log.segment.time_index import NO_TIMESTAMP
from plogd.topic_config import TopicConfig


class SegmentAge:
    """The age of one segment; `seed` distinguishes it from the segments of other logs."""

    __slots__ = ("_created_ms", "_first_timestamp", "_seed")

    def __init__(self, seed: str) -> None:
        self._seed = seed
        # None means not computed yet.
        self._created_ms: int | None = None
        self._first_timestamp: int | None = None

    def begin(self, first_timestamp: int) -> None:
        """Record the timestamp of the segment's first batch; -1 if it has none."""
        self._first_timestamp = first_timestamp

    def reset(self) -> None:
        """Forget the first batch, because it may have been removed."""
        self._first_timestamp = self._created_ms = None

    def requires_roll(
        self, config: TopicConfig, records: FileRecords, timestamp_ms: int, now_ms: int
    ) -> bool:
        """Return whether a batch with this timestamp needs a new segment; `records` exist."""
        first_timestamp = self._first_timestamp
        if first_timestamp is None:
            first_timestamp = self._first_timestamp = _first_timestamp_of(records)
        waited_ms = timestamp_ms - first_timestamp
        if first_timestamp < 0:
            waited_ms = self._since_creation_ms(now_ms)
        # For almost every append, this avoids the hash in `_roll_after_ms`.
        unjittered_ms = waited_ms + config.segment_jitter_ms
        if unjittered_ms <= config.segment_ms and unjittered_ms <= config.max_compaction_lag_ms:
            return False
        return waited_ms > self._roll_after_ms(config)

    def _roll_after_ms(self, config: TopicConfig) -> int:
        """Return the largest age minus a part of ``segment.jitter.ms``, to spread out the rolls.

        The part is pseudo-random, but constant for each segment.
        """
        if not config.segment_jitter_ms:
            return config.max_segment_ms
        # A hash, because a random number would have to be stored for each segment.
        share = zlib.crc32(self._seed.encode())
        return config.max_segment_ms - share % min(config.segment_jitter_ms, config.segment_ms)

    def _since_creation_ms(self, now_ms: int) -> int:
        """Return the segment's age by the clock."""
        if self._created_ms is None:
            self._created_ms = now_ms
        return now_ms - self._created_ms


def _first_timestamp_of(records: FileRecords) -> int:
    try:
        header = records.header_at(0)
    except CorruptMessage:  # Damage in the first batch must not prevent appends.
        header = None
    return NO_TIMESTAMP if header is None else header.max_timestamp
