"""The ``.timeindex`` of a segment: from a timestamp to an offset before which all is older.

12 bytes an entry, big-endian, written along with offset index entries where the largest timestamp
has risen, and once more when the segment is rolled or closed:

    timestamp         int64   the largest timestamp in the segment so far, ms
    relative offset   int32   last offset of the first batch that has it, minus the base offset

The last entry tells a segment's age to retention without a look into the log.

Source: Kafka 3.9 TimeIndex, LogSegment.append.
Invariant: timestamps rise strictly and offsets never fall from entry to entry.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET, CorruptIndex, IndexFile
from plogd.ports import File, Files

NO_TIMESTAMP = -1

_ENTRY = struct.Struct(">qi")
_TIMESTAMP, _OFFSET = 0, 1


class TimestampOffset(NamedTuple):
    """A timestamp and the last offset of the first batch that has it."""

    timestamp: int
    offset: int


class TimestampAndOffset(NamedTuple):
    """A record found by time: its timestamp, its offset, the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimeIndex:
    """The time index of one segment. Offsets are absolute here, relative only on disk."""

    __slots__ = ("_index", "base_offset", "last_entry")

    def __init__(
        self,
        files: Files,
        path: str,
        base_offset: int,
        max_bytes: int,
        *,
        read_only: bool = False,
    ) -> None:
        self._index = IndexFile(files, path, _ENTRY, max_bytes, read_only=read_only)
        self.base_offset = base_offset
        self.last_entry = self._read_last_entry()
        """(-1, base offset) while the index is empty."""

    @property
    def file(self) -> File:
        """The open file, to make it durable."""
        return self._index.file

    @property
    def count(self) -> int:
        """How many entries there are."""
        return self._index.count

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll; the last slot is kept for the entry written then."""
        return self._index.count >= self._index.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry if `timestamp` is larger than the last one's.

        `skip_full_check` is for the entry at the roll. Raises OSError with nothing appended.
        """
        assert skip_full_check or not self.is_full, self.file.path
        if timestamp <= self.last_entry.timestamp:
            return
        relative_offset = offset - self.base_offset
        assert 0 <= relative_offset <= MAX_RELATIVE_OFFSET, (offset, self.base_offset)
        assert offset >= self.last_entry.offset, (offset, self.last_entry)
        self._index.append(timestamp, relative_offset)
        self.last_entry = TimestampOffset(timestamp, offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below `timestamp`; (-1, base offset) if there is none."""
        if self.count and timestamp >= self.last_entry.timestamp:
            return self.last_entry
        slot = self._index.floor_slot(_TIMESTAMP, timestamp)
        return self.entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def entry(self, slot: int) -> TimestampOffset:
        """One entry; the first is number 0."""
        timestamp, relative_offset = self._index.entry(slot)
        return TimestampOffset(timestamp, self.base_offset + relative_offset)

    def repair(self) -> None:
        """Cut what a failed append has left. Raises OSError."""
        self._index.repair()

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        self.truncate_to_count(self._index.floor_slot(_OFFSET, offset - 1 - self.base_offset) + 1)

    def truncate_to_count(self, count: int) -> None:
        """Keep the first `count` entries."""
        try:
            self._index.truncate(count)
        finally:  # The count has changed even if the file could not be cut yet.
            self.last_entry = self._read_last_entry()

    def sanity_check(self) -> None:
        """Raises CorruptIndex on what can be seen without reading all of it."""
        self._index.check_size()
        if not self.count:
            return
        first, last = self.entry(0), self.last_entry
        if first.timestamp < 0 or first.timestamp > last.timestamp:
            raise CorruptIndex(f"{self.file.path}: entries from {first} to {last} do not rise")
        if not self.base_offset <= first.offset <= last.offset:
            raise CorruptIndex(f"{self.file.path}: entries from {first} to {last} do not rise")

    def close(self) -> None:
        """Let go of the file."""
        self._index.close()

    def _read_last_entry(self) -> TimestampOffset:
        if not self.count:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self.entry(self.count - 1)
