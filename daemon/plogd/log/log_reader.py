"""Map a read of one log to a slice of a segment file, and find the aborted transactions in it.

`LogReader` finds the segment, the first batch, and the position at which the readable records end.
For read_committed consumers, it also looks up the aborted transactions whose records are in the
slice (segment/transaction_index.py). Called on the reactor's thread.

Source: Kafka 3.9 LocalLog.read, UnifiedLog.collectAbortedTransactions; the Kafka paper (NetDB
2011), section 3.1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from plog.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange
from plog.types import TopicPartition
from plogd.log.log_results import NO_DATA, FetchData, as_fetch_data
from plogd.log.segment.file_records import FileRegion
from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.segments import Segments
from plogd.log.segment.transaction_index import AbortedTransaction

_MAX_ABORTED = 1000
"""Number of aborted transactions above which a read returns fewer records, so that building the
response does not hold the reactor."""


class ReadLog(Protocol):
    """The parts of a `Log` that a read uses."""

    topic_partition: TopicPartition
    log_start_offset: int
    log_end_offset: int

    @property
    def active_size(self) -> int:
        """Number of bytes in the active segment that belong to the log."""
        ...


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
        log: ReadLog,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        at_least_one: bool,
        read_committed: bool,
        nowait: bool,
    ) -> FetchData:
        """Return batches as `Log.read` does. Raises OSError, and the other errors of `Log.read`."""
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(
                f"{log.topic_partition}: offset {offset} is outside "
                f"[{log.log_start_offset}, {log.log_end_offset}]"
            )
        end_offset = min(end_offset, log.log_end_offset)
        if offset >= end_offset or (max_bytes <= 0 and not at_least_one):
            return NO_DATA
        segment, region = self._slice(log, offset, max_bytes, end_offset, at_least_one, nowait)
        data = as_fetch_data(region)
        if data.region is None or not read_committed or not self._segments.with_aborted():
            return data
        try:
            limit = _offset_from(segment, data.region.end_position, nowait=nowait)
            if limit is None:
                limit = self._segments.end_offset_of(segment, end_offset)
            aborted = self._aborted_in(log, segment, offset, min(limit, end_offset), nowait=nowait)
        except BaseException:
            data.region.close()
            raise
        if len(aborted) > _MAX_ABORTED:
            end_offset = sorted(one.first_offset for one in aborted)[_MAX_ABORTED]
            if end_offset > offset:
                data.region.close()
                return self.read(
                    log,
                    offset,
                    max_bytes,
                    end_offset=end_offset,
                    at_least_one=at_least_one,
                    read_committed=read_committed,
                    nowait=nowait,
                )
        return data._replace(aborted=aborted)

    def _slice(
        self,
        log: ReadLog,
        offset: int,
        max_bytes: int,
        end_offset: int,
        at_least_one: bool,
        nowait: bool,
    ) -> tuple[LogSegment, FileRegion | None]:
        """Return the region with the batches, and its segment."""
        segment = self._segments.active
        # If a segment has lost records at its end, reads continue in the next segment.
        for segment in self._segments.starting_at(offset):
            if segment.base_offset >= end_offset:
                break
            region = segment.read(
                offset,
                max_bytes,
                max_position=self._position_of(end_offset, segment, log, nowait),
                at_least_one=at_least_one,
                nowait=nowait,
            )
            if region is not None:
                return segment, region
        return segment, None

    def _aborted_in(
        self, log: ReadLog, segment: LogSegment, offset: int, end_offset: int, *, nowait: bool
    ) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions with records in these offsets, which are in `segment`."""
        found: list[AbortedTransaction] = []
        # A marker is never before the records of its transaction.
        segments = self._segments.with_aborted()
        first = bisect_left(segments, segment.base_offset, key=lambda one: one.base_offset)
        for with_markers in segments[first:]:
            assert with_markers.transactions.index is not None
            try:
                some, is_complete = with_markers.transactions.index.collect(
                    offset, end_offset, nowait=nowait
                )
            except CorruptIndex as error:
                raise KafkaStorageError(
                    f"{log.topic_partition}: cannot look up aborted transactions: {error}; restart"
                    " the broker to rebuild the index"
                ) from error
            found += some
            if is_complete:
                break
        return found

    def _position_of(self, end_offset: int, segment: LogSegment, log: ReadLog, nowait: bool) -> int:
        """Return the byte position in `segment` at which the batches below `end_offset` end."""
        # The cases before the last one avoid an index lookup for most reads.
        known_offset, known_segment, known_position = self._known_end
        if known_segment is segment and known_offset == end_offset:
            return known_position
        log_end_offset = log.log_end_offset
        if segment is self._segments.active:
            if end_offset >= log_end_offset:
                return log.active_size
        elif end_offset >= self._segments.end_offset_of(segment, log_end_offset):
            return segment.size_bytes
        return segment.position_of(end_offset, nowait=nowait)


def _offset_from(segment: LogSegment, position: int, *, nowait: bool) -> int | None:
    """Return the base offset of a batch at or after byte `position`, or None if none is known.

    The batch is the first one with an index entry. With `nowait`, raises UncachedLookup.
    """
    try:
        entry = segment.indexes.first_entry_from(position, nowait=nowait)
        if entry is None:
            return None
        # Index entries are only hints. With a wrong limit, the reader would get aborted records.
        for place in segment.records.places_from(entry.position, nowait=nowait):
            if place.last_offset == entry.offset:
                return place.base_offset
            break
    except (CorruptIndex, CorruptMessage):
        pass
    segment.index_is_suspect = True
    return None
