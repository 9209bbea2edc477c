"""`OffsetRange`: the part of a partition that one task, or one batch of a query, reads."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from plog.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The records of `partition` from `start_offset` up to, but not including, `end_offset`."""

    partition: TopicPartition
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        """The number of offsets, which may exceed that of records; 0 if the range is empty."""
        # Transaction markers and compaction leave offsets without records. An end before the start,
        # to which times can lead, selects nothing.
        return max(0, self.end_offset - self.start_offset)

    def split(self, parts: int) -> list[OffsetRange]:
        """Return `parts` adjacent ranges, whose sizes differ by at most one.

        >>> whole = OffsetRange(partition=TopicPartition("t", 0), start_offset=10, end_offset=15)
        >>> [(part.start_offset, part.end_offset) for part in whole.split(2)]
        [(10, 12), (12, 15)]
        """
        start, size = self.start_offset, self.size
        # Multiplying before dividing keeps the cuts exact, so that the parts have no gaps.
        cuts = [start + size * number // parts for number in range(parts + 1)]
        return [
            OffsetRange(partition=self.partition, start_offset=first, end_offset=end)
            for first, end in pairwise(cuts)
        ]
