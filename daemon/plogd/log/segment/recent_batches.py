"""The positions of a segment's newest batches, so that most lookups need no read.

Consumers that keep up fetch the newest batches, and the high watermark is also near the end. Each
`LogSegment` owns one object and adds each batch that it appends. One thread adds batches, while
another may look them up.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from plogd.log.segment.file_records import BatchPlace

_REMEMBERED = 512


class RecentBatches:
    """The last 512 to 1024 appended batches; a lookup takes O(log n)."""

    __slots__ = ("_lists",)

    def __init__(self) -> None:
        # Arrays take at most 16 KiB. Lists of ints would take 80 KiB, for each of possibly
        # thousands of partitions.
        self._lists = (array("q"), array("q"))
        """Last offsets and positions. Replaced together, because a lookup may run concurrently."""

    def add(self, position: int, last_offset: int) -> None:
        """Add a batch ending at `last_offset` that was appended at `position`."""
        last_offsets, positions = self._lists
        # In this order: a lookup may run between the two calls, and needs a position for each last
        # offset.
        positions.append(position)
        last_offsets.append(last_offset)
        # Half of the batches at a time, because removing the first element copies all others.
        if len(positions) > 2 * _REMEMBERED:
            self._lists = last_offsets[_REMEMBERED:], positions[_REMEMBERED:]

    def find(self, offset: int, end_position: int) -> BatchPlace | None:
        """Return the first batch that ends at or after `offset`, or None if it is not known.

        `end_position` is the end of the last batch.
        """
        last_offsets, positions = self._lists
        if not last_offsets or offset > last_offsets[-1]:
            return None
        number = bisect_left(last_offsets, offset)
        if not number:
            return None  # It may be in an older batch.
        position = positions[number]
        end = positions[number + 1] if number + 1 < len(positions) else end_position
        # Only compaction leaves gaps between batches, and never in an active segment.
        return BatchPlace(
            position, end - position, last_offsets[number - 1] + 1, last_offsets[number]
        )

    def clear(self) -> None:
        """Remove all batches: the segment was truncated."""
        self._lists = (array("q"), array("q"))
