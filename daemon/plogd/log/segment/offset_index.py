"""The ``.index`` file of a segment: maps an offset to a byte position at or before its batch.

There is about one entry per ``index.interval.bytes`` of batches. An entry has 8 bytes, big-endian:

    relative offset   int32   last offset of a batch, minus the segment's base offset
    position          int32   position of this batch in the .log file

Source: Kafka 3.9 OffsetIndex, LogSegment.append.
Invariant: both fields strictly increase from entry to entry.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET, CorruptIndex, IndexFile

_POSITION_FIELD = 1


class OffsetPosition(NamedTuple):
    """The last offset of a batch, and the byte position of the batch."""

    offset: int
    position: int


class OffsetIndex(IndexFile[OffsetPosition]):
    """The offset index of one segment."""

    __slots__ = ()

    # Kafka's format. An int32 suffices for a position, because segment.bytes is an int32 in Kafka.
    LAYOUT = struct.Struct(">ii")
    OFFSET_FIELD = 0

    @property
    def empty_entry(self) -> OffsetPosition:
        """The beginning of the segment."""
        return OffsetPosition(self.base_offset, 0)

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll because the index has reached ``segment.index.bytes``."""
        return self.count >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """Add an entry for the batch at `position` with the last offset `offset`, in memory."""
        relative_offset = offset - self.base_offset
        assert 0 <= relative_offset <= MAX_RELATIVE_OFFSET, (offset, self.base_offset)
        assert not self.count or offset > self.last_entry.offset, (offset, self.last_entry)
        self._append(relative_offset, position)
        self.last_entry = OffsetPosition(offset, position)

    def lookup(self, offset: int, *, nowait: bool = False) -> OffsetPosition:
        """Return the last entry at or below `offset`, or `empty_entry`.

        With `nowait`, raises UncachedLookup.
        """
        # Most lookups are for the newest records, so the last entry is in memory.
        if self.count and offset >= self.last_entry.offset:
            return self.last_entry
        slot = self._floor_slot(self.OFFSET_FIELD, offset - self.base_offset, nowait=nowait)
        return self.entry(slot, nowait=nowait) if slot >= 0 else self.empty_entry

    def first_from(self, position: int, *, nowait: bool) -> OffsetPosition | None:
        """Return the first entry at or after byte `position`, or None.

        Raises CorruptIndex; with `nowait`, also UncachedLookup.
        """
        slot = self._floor_slot(_POSITION_FIELD, position - 1, nowait=nowait) + 1
        return self.entry(slot, nowait=nowait) if slot < self.count else None

    def entry(self, slot: int, *, nowait: bool = False) -> OffsetPosition:
        """Return the entry with number `slot`, counted from 0.

        Raises CorruptIndex; with `nowait`, also UncachedLookup.
        """
        relative_offset, position = self._fields(slot, nowait)
        return OffsetPosition(self.base_offset + relative_offset, position)

    def sanity_check(self, log_size_bytes: int) -> None:
        """Raise CorruptIndex if the size, the first entry or the last entry is invalid."""
        self._check_size()
        if not self.count:
            return
        first, last = self.entry(0), self.last_entry
        # The first batch of a segment is never indexed, so neither field is ever 0.
        if not self.base_offset < first.offset <= last.offset:
            raise CorruptIndex(f"{self.file.path}: invalid first or last entry: {first}, {last}")
        if not 0 < first.position <= last.position < log_size_bytes:
            raise CorruptIndex(
                f"{self.file.path}: first entry {first} or last entry {last} does not fit a log of"
                f" {log_size_bytes} bytes"
            )
