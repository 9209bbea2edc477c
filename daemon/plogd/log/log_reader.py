"""Map a read of one log to a slice of a segment file.

`Log.read` checks the offset; `LogReader` finds the segment, the first batch, and the position at
which the readable records end. Called on the reactor's thread.

Source: Kafka 3.9 LocalLog.read; the Kafka paper (NetDB 2011), section 3.1.
"""

from __future__ import annotations

from plogd.log.log_results import NO_DATA, FetchData, as_fetch_data
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.segments import Segments


class LogReader:
    """Reads the segments of one log."""

    __slots__ = ("_known_end", "_segments")

    def __init__(self, segments: Segments, end_offset: int) -> None:
        self._segments = segments
        self._known_end = (end_offset, segments.active, segments.active.size_bytes)
        """The log end when the last sync round began: its offset, segment and byte position."""

    def note_end(self, end_offset: int, position: int) -> None:
        """Note where the log ends in the active segment, as a sync round begins.

        The end of a sync round becomes the high watermark, which is where most reads stop.
        """
        self._known_end = (end_offset, self._segments.active, position)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        log_end: tuple[int, int],
        at_least_one: bool,
        nowait: bool,
    ) -> FetchData:
        """Return batches as `Log.read` does; `offset` is below `end_offset`.

        `log_end` is the log end offset and its position in the active segment. Raises OSError; with
        `nowait`, also UncachedLookup.
        """
        # If a segment has lost records at its end, reads continue in the next segment.
        for segment in self._segments.starting_at(offset):
            if segment.base_offset >= end_offset:
                break
            region = segment.read(
                offset,
                max_bytes,
                max_position=self._position_of(end_offset, segment, log_end, nowait),
                at_least_one=at_least_one,
                nowait=nowait,
            )
            if region is not None:
                return as_fetch_data(region)
        return NO_DATA

    def _position_of(
        self, end_offset: int, segment: LogSegment, log_end: tuple[int, int], nowait: bool
    ) -> int:
        """Return the byte position in `segment` at which the batches below `end_offset` end."""
        # The cases before the last one avoid an index lookup for most reads.
        known_offset, known_segment, known_position = self._known_end
        if known_segment is segment and known_offset == end_offset:
            return known_position
        log_end_offset, active_size = log_end
        if segment is self._segments.active:
            if end_offset >= log_end_offset:
                return active_size
        elif end_offset >= self._segments.end_offset_of(segment, log_end_offset):
            return segment.size_bytes
        return segment.position_of(end_offset, nowait=nowait)
