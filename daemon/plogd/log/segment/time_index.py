"""The ``.timeindex`` file of a segment: maps timestamps to offsets.

All records with a timestamp larger than the timestamp in an entry follow the offset in the entry.
An entry has 12 bytes, big-endian. It is added together with an offset index entry if the largest
timestamp has increased, and once more when the segment is rolled or closed:

    timestamp         int64   the largest timestamp in the segment so far, ms
    relative offset   int32   last offset of the first batch with it, minus the base offset

Retention uses the last entry to determine a segment's age without reading the log.

Source: Kafka 3.9 TimeIndex, LogSegment.append.
Invariant: from entry to entry, timestamps strictly increase and offsets never decrease.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET, CorruptIndex, IndexFile

NO_TIMESTAMP = -1
_TIMESTAMP_FIELD = 0


class TimestampOffset(NamedTuple):
    """A timestamp, and the last offset of the first batch that contains it."""

    timestamp: int
    offset: int


class TimestampAndOffset(NamedTuple):
    """A record found by time: its timestamp, its offset, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimeIndex(IndexFile[TimestampOffset]):
    """The time index of one segment."""

    __slots__ = ()

    LAYOUT = struct.Struct(">qi")
    OFFSET_FIELD = 1

    @property
    def empty_entry(self) -> TimestampOffset:
        """No timestamp, at the beginning of the segment."""
        return TimestampOffset(NO_TIMESTAMP, self.base_offset)

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll because the index is full."""
        # The last slot is reserved for the entry that is added at the roll.
        return self.count >= self.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry, in memory, if `timestamp` is larger than the one in the last entry.

        Set `skip_full_check` for the entry at the roll.
        """
        assert skip_full_check or not self.is_full, self.file.path
        # No entry for an equal timestamp, because a lookup needs the first batch with a timestamp.
        if timestamp <= self.last_entry.timestamp:
            return
        relative_offset = offset - self.base_offset
        assert 0 <= relative_offset <= MAX_RELATIVE_OFFSET, (offset, self.base_offset)
        assert offset >= self.last_entry.offset, (offset, self.last_entry)
        self._append(timestamp, relative_offset)
        self.last_entry = TimestampOffset(timestamp, offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry at or below `timestamp`, or `empty_entry`."""
        if self.count and timestamp >= self.last_entry.timestamp:
            return self.last_entry
        slot = self._floor_slot(_TIMESTAMP_FIELD, timestamp)
        return self.entry(slot) if slot >= 0 else self.empty_entry

    def entry(self, slot: int, *, nowait: bool = False) -> TimestampOffset:
        """Return the entry with number `slot`, counted from 0.

        Raises CorruptIndex; with `nowait`, also UncachedLookup.
        """
        timestamp, relative_offset = self._fields(slot, nowait)
        return TimestampOffset(timestamp, self.base_offset + relative_offset)

    def sanity_check(self) -> None:
        """Raise CorruptIndex if the size, the first entry or the last entry is invalid."""
        self._check_size()
        if not self.count:
            return
        first, last = self.entry(0), self.last_entry
        # A batch without a timestamp (-1) never adds an entry.
        if first.timestamp < 0 or first.timestamp > last.timestamp:
            raise CorruptIndex(f"{self.file.path}: invalid first or last entry: {first}, {last}")
        if not self.base_offset <= first.offset <= last.offset:
            raise CorruptIndex(f"{self.file.path}: invalid first or last entry: {first}, {last}")
