"""Where a segment's newest batches lie, so that most look-ups cost no read at all.

Consumers that keep up ask for what was appended a moment ago, and a high watermark is a place
near the end. Belongs to one `LogSegment`, which adds each batch it appends. At most 16 KiB: as a
list of ints it would be 80, and there may be thousands of partitions.

Batches are added by one thread; another may look something up meanwhile.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from plogd.log.segment.file_records import BatchPlace

_REMEMBERED = 512


class RecentBatches:
    """The last 512 to 1024 appended batches. O(log n) look-up."""

    __slots__ = ("_lists",)

    def __init__(self) -> None:
        self._lists = (array("q"), array("q"))
        """Last offsets and positions; replaced together, for a look-up may come at any time."""

    def add(self, position: int, last_offset: int) -> None:
        """A batch ending at `last_offset` was appended at `position`."""
        last_offsets, positions = self._lists
        # In this order: a look-up may come between the two.
        positions.append(position)
        last_offsets.append(last_offset)
        if len(positions) > 2 * _REMEMBERED:
            self._lists = last_offsets[_REMEMBERED:], positions[_REMEMBERED:]

    def find(self, offset: int, end_position: int) -> BatchPlace | None:
        """The first batch that ends at or above `offset`; None if it is not remembered.

        `end_position` is where the last batch ends.
        """
        last_offsets, positions = self._lists
        if not last_offsets or offset > last_offsets[-1]:
            return None
        number = bisect_left(last_offsets, offset)
        if not number:
            return None  # It may lie in an older batch.
        position = positions[number]
        end = positions[number + 1] if number + 1 < len(positions) else end_position
        # Only compaction leaves gaps between batches, and never in a segment that is appended to.
        return BatchPlace(
            position, end - position, last_offsets[number - 1] + 1, last_offsets[number]
        )

    def clear(self) -> None:
        """Forget them all: the segment was cut."""
        self._lists = (array("q"), array("q"))
