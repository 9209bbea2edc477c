"""The ``.index`` of a segment: from an offset to a byte position at or before it.

One entry for about each ``index.interval.bytes`` of batches, 8 bytes, big-endian:

    relative offset   int32   last offset of a batch, minus the segment's base offset
    position          int32   where that batch begins in the .log

Source: Kafka 3.9 OffsetIndex, LogSegment.append.
Invariant: both fields rise strictly from entry to entry.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET, CorruptIndex, IndexFile
from plogd.ports import File, Files

_ENTRY = struct.Struct(">ii")
_OFFSET = 0


class OffsetPosition(NamedTuple):
    """An offset and where the batch ending at it begins."""

    offset: int
    position: int


class OffsetIndex:
    """The offset index of one segment. Offsets are absolute here, relative only on disk."""

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
        """(base offset, 0) while the index is empty."""

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
        """Whether the segment must roll because ``segment.index.bytes`` are used up."""
        return self._index.count >= self._index.max_entries

    def append(self, offset: int, position: int) -> None:
        """Note that the batch ending at `offset` begins at `position`.

        Raises OSError with nothing appended.
        """
        relative_offset = offset - self.base_offset
        assert 0 <= relative_offset <= MAX_RELATIVE_OFFSET, (offset, self.base_offset)
        assert not self.count or offset > self.last_entry.offset, (offset, self.last_entry)
        self._index.append(relative_offset, position)
        self.last_entry = OffsetPosition(offset, position)

    def lookup(self, offset: int, *, nowait: bool = False) -> OffsetPosition:
        """The last entry at or below `offset`; (base offset, 0) if there is none.

        Raises ColdRead, with `nowait`.
        """
        if self.count and offset >= self.last_entry.offset:
            return self.last_entry
        slot = self._index.floor_slot(_OFFSET, offset - self.base_offset, nowait=nowait)
        return self.entry(slot, nowait=nowait) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def entry(self, slot: int, *, nowait: bool = False) -> OffsetPosition:
        """One entry; the first is number 0. Raises ColdRead, with `nowait`."""
        relative_offset, position = self._index.entry(slot, nowait=nowait)
        return OffsetPosition(self.base_offset + relative_offset, position)

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

    def sanity_check(self, log_size_bytes: int) -> None:
        """Raises CorruptIndex on what can be seen without reading all of it."""
        self._index.check_size()
        if not self.count:
            return
        first, last = self.entry(0), self.last_entry
        # The first batch of a segment is never indexed, so neither field is ever 0.
        if not self.base_offset < first.offset <= last.offset:
            raise CorruptIndex(f"{self.file.path}: entries from {first} to {last} do not rise")
        if not 0 < first.position <= last.position < log_size_bytes:
            raise CorruptIndex(f"{self.file.path}: {last} is not in {log_size_bytes} bytes of log")

    def close(self) -> None:
        """Let go of the file."""
        self._index.close()

    def _read_last_entry(self) -> OffsetPosition:
        if not self.count:
            return OffsetPosition(self.base_offset, 0)
        return self.entry(self.count - 1)
