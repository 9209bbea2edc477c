"""Limits of one batch of a stream: ``maxOffsetsPerTrigger``, ``maxBytesPerTrigger`` and others.

A limit is shared out in proportion to the backlog of each partition, so that large backlogs do not
keep small ones waiting. The functions are pure; the caller passes the time.

Source: Spark 4.2 KafkaMicroBatchStream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plog.types import TopicPartition


def backlog(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the number of offsets to read in each partition of `ends`.

    A partition without a start counts from offset 0.
    """
    return {partition: max(0, end - starts.get(partition, 0)) for partition, end in ends.items()}


def limit_offsets(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], max_offsets: int
) -> dict[TopicPartition, int]:
    """Return ends of a batch of about `max_offsets` offsets; no end exceeds that in `ends`.

    Every partition with a backlog advances by at least one offset, even if that exceeds the limit.
    """
    sizes = backlog(starts, ends)
    total = sum(sizes.values())
    if total == 0:
        return dict(ends)
    return {
        partition: _advanced(ends[partition], size, max_offsets * size // total)
        for partition, size in sizes.items()
    }


def limit_bytes(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    max_bytes: int,
    record_bytes: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Return ends of a batch of about `max_bytes`; `record_bytes` are the average record sizes.

    The end of a partition without a known average stays as it is. Every partition with a backlog
    advances by at least one offset.
    """
    sizes = backlog(starts, ends)
    total = sum(size * record_bytes.get(partition, 0.0) for partition, size in sizes.items())
    if total <= max_bytes:
        return dict(ends)
    # The share of each partition in offsets: its part of the bytes divided by its average cancels
    # out to the same fraction of every backlog.
    fraction = max_bytes / total
    return {
        partition: _advanced(
            ends[partition], size, int(size * fraction) if record_bytes.get(partition) else size
        )
        for partition, size in sizes.items()
    }


def _advanced(end: int, size: int, share: int) -> int:
    """Return the end after `share` offsets of a backlog of `size` that ends at `end`."""
    # As in the connector, a share is at least one offset. Otherwise, a small backlog next to a
    # large one would never be read.
    return end - size + min(size, max(1, share)) if size else end


@dataclass(slots=True, kw_only=True)
class TriggerDelay:
    """Delays batches until `min_offsets` are available, for at most `max_delay_ms`.

    The first batch is never delayed.
    """

    min_offsets: int
    max_delay_ms: int
    _last_ms: int | None = None

    def is_due(self, new_offsets: int, now_ms: int) -> bool:
        """Return whether to start a batch of `new_offsets` now, on any clock that only advances."""
        # As in the connector, the first batch is due, because its records have waited for an
        # unknown time.
        has_waited = self._last_ms is None or now_ms - self._last_ms >= self.max_delay_ms
        if has_waited or new_offsets >= self.min_offsets:
            self._last_ms = now_ms
            return True
        return False
