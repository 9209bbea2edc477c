"""The segments of one log, sorted by base offset.

`Log` uses this list to find the segment that contains an offset, and the active segment. The module
accesses no files and runs on the reactor's thread. Source: the Kafka paper (NetDB 2011), section
3.1, which describes a sorted in-memory list of each segment's first offset. Invariant: base offsets
strictly increase, and there is always an active (last) segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from plogd.log.retention_policy import SegmentInfo
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.transaction_index import AbortedTransaction


class Segments:
    """A log's segments by base offset. Lookups take O(log n)."""

    __slots__ = ("_base_offsets", "_segments", "_with_aborted", "active")

    def __init__(self, segments: Iterable[LogSegment]) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        # A separate list, because bisect with a key calls a function in each step.
        self._base_offsets = [segment.base_offset for segment in self._segments]
        assert self._segments, "a log has at least its active segment"
        # An attribute instead of a property, because every append uses it.
        self.active = self._segments[-1]
        """The segment that receives appends."""
        self._with_aborted: list[LogSegment] | None = None
        """The segments with aborted transactions; None if the list is out of date."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    @property
    def first(self) -> LogSegment:
        """The oldest segment."""
        return self._segments[0]

    def add(self, segment: LogSegment) -> None:
        """Add `segment` as the active segment."""
        assert segment.base_offset > self._base_offsets[-1]
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.active = segment

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Add a transaction to the index of the active segment. Raises OSError."""
        self.active.transactions.add(aborted)
        self._with_aborted = None

    def remove_first(self, count: int) -> Sequence[LogSegment]:
        """Remove and return the `count` oldest segments, never the active one."""
        assert count < len(self._segments)
        removed = self._segments[:count]
        del self._segments[:count]
        del self._base_offsets[:count]
        self._with_aborted = None
        return removed

    def remove_after(self, last: LogSegment) -> Sequence[LogSegment]:
        """Remove and return the segments after `last`, which becomes the active one."""
        count = self._segments.index(last) + 1
        removed = self._segments[count:]
        del self._segments[count:]
        del self._base_offsets[count:]
        self.active = self._segments[-1]
        self._with_aborted = None
        return removed

    def replace_all(self, segment: LogSegment) -> None:
        """Replace all segments with `segment`."""
        self._segments[:] = [segment]
        self._base_offsets[:] = [segment.base_offset]
        self.active = segment
        self._with_aborted = None

    def replace(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Replace adjacent segments, not the active one, with one that begins where they begin."""
        first = self._segments.index(old[0])
        last = first + len(old)
        assert self._segments[first:last] == list(old)
        assert new.base_offset == old[0].base_offset
        assert last < len(self._segments)
        self._segments[first:last] = [new]
        self._base_offsets[first:last] = [new.base_offset]
        self._with_aborted = None

    def starting_at(self, offset: int) -> Iterator[LogSegment]:
        """Return the segments that may contain `offset` or later offsets."""
        # For an offset below the first base offset, bisect returns 0; all segments then follow it.
        start = max(0, bisect_right(self._base_offsets, offset) - 1)
        return iter(self._segments[start:])

    def with_aborted(self) -> Sequence[LogSegment]:
        """Return the segments that contain abort markers of transactions, oldest first."""
        if self._with_aborted is None:
            self._with_aborted = [
                segment for segment in self._segments if segment.transactions.index is not None
            ]
        return self._with_aborted

    def end_offset_of(self, segment: LogSegment, log_end_offset: int) -> int:
        """Return the next segment's base offset, or the log end offset for the active segment."""
        after = bisect_right(self._base_offsets, segment.base_offset)
        return self._base_offsets[after] if after < len(self._base_offsets) else log_end_offset

    def infos(self, log_end_offset: int) -> list[SegmentInfo]:
        """Return the facts about each segment on which retention depends."""
        return [
            SegmentInfo(
                base_offset=segment.base_offset,
                end_offset=self.end_offset_of(segment, log_end_offset),
                size_bytes=segment.size_bytes,
                max_timestamp_ms=segment.largest_timestamp,
            )
            for segment in self._segments
        ]
