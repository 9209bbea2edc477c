"""The positions of a segment's newest batches, so that most lookups do not need a read.

Most lookups are for the newest batches: consumers that keep up fetch them, and the high watermark
is in them. Each `LogSegment` has a `RecentBatches` and adds each batch that it appends. One thread
adds batches, while another thread may look them up.
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
        # Two arrays take at most 16 KiB; lists of ints would take 80 KiB. There may be thousands of
        # partitions.
        self._lists = (array("q"), array("q"))
        """Last offsets and positions, replaced together because lookups run concurrently."""

    def add(self, position: int, last_offset: int) -> None:
        """Add a batch that ends at `last_offset` and was appended at `position`."""
        last_offsets, positions = self._lists
        # In this order, because a lookup may run between the two calls and needs a position for
        # each last offset.
        positions.append(position)
        last_offsets.append(last_offset)
        # Half of the batches are removed at a time, because each removal copies the remaining ones.
        if len(positions) > 2 * _REMEMBERED:
            self._lists = last_offsets[_REMEMBERED:], positions[_REMEMBERED:]

    def find(self, offset: int, end_position: int) -> BatchPlace | None:
        """Return the first batch that ends at or after `offset`; None if the batch is not known.

        `end_position` is the byte position at which the last batch ends.
        """
        last_offsets, positions = self._lists
        if not last_offsets or offset > last_offsets[-1]:
            return None
        number = bisect_left(last_offsets, offset)
        if not number:
            return None  # The offset may be in an older batch.
        position = positions[number]
        end = positions[number + 1] if number + 1 < len(positions) else end_position
        # There are no gaps between these batches: the caller removes the batches before a gap.
        return BatchPlace(
            position, end - position, last_offsets[number - 1] + 1, last_offsets[number]
        )

    @property
    def end_offset(self) -> int | None:
        """The offset after the newest batch; None without batches."""
        last_offsets, _ = self._lists
        return last_offsets[-1] + 1 if last_offsets else None

    def clear(self) -> None:
        """Remove all batches: the segment was truncated, or the next batch follows a gap."""
        self._lists = (array("q"), array("q"))
