"""A sparse index on disk: fixed-size entries in ascending order, found by bisection.

`IndexFile` is the base class of `OffsetIndex` and `TimeIndex`. It does not use mmap: new entries
are kept in memory until `flush` writes them, a lookup costs a few preads, and the last entry stays
in memory because most lookups need it. The file contains only entries. Kafka preallocates the index
of an active segment with zeros, and trims the file on a roll or a clean stop; after a clean stop,
Kafka and plog can therefore read each other's files.

A missing or damaged index is rebuilt from the ``.log`` (recovery/segment_recovery.py), and each
lookup checks the batch to which an entry leads.

Source: Kafka 3.9 AbstractIndex. Invariant: a failed flush leaves the entries unchanged.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any, ClassVar, Generic, TypeVar

from plog.errors import PlogError
from plogd.log.segment.uncached_lookup import uncached_range
from plogd.ports import Buffer, File, Files

# In an offset index, these entries fill a page of 4 KiB.
_BLOCK_ENTRIES = 512
"""If at most this number of entries remain to be searched, one pread reads all of them."""

MAX_RELATIVE_OFFSET = 2**31 - 1
"""The largest distance between an offset and its segment's base offset: an int32 in an entry."""

E = TypeVar("E")


class CorruptIndex(PlogError):
    """An index file is damaged and must be rebuilt from the log."""


def _open_read(files: Files, path: str) -> File:
    try:
        return files.open_read(path)
    except FileNotFoundError:
        raise CorruptIndex(f"{path} is missing") from None


class IndexFile(Generic[E]):
    """A segment's index with entries of type `E`. One thread appends; any thread looks up entries.

    Offsets are absolute in memory, and relative to `base_offset` on disk.
    """

    __slots__ = (
        "_size_remainder",
        "_tail",
        "_torn",
        "base_offset",
        "count",
        "file",
        "last_entry",
        "max_entries",
    )

    LAYOUT: ClassVar[struct.Struct]
    """The fields of an entry on disk."""
    OFFSET_FIELD: ClassVar[int]
    """The position, within an entry, of the field for the relative offset."""

    def __init__(
        self,
        files: Files,
        path: str,
        base_offset: int,
        max_bytes: int,
        *,
        read_only: bool = False,
    ) -> None:
        """Open the index. Raises OSError, or CorruptIndex if a `read_only` file is missing."""
        self.base_offset = base_offset
        # A copy for one lookup must not create the file of a segment that retention has deleted.
        self.file: File = _open_read(files, path) if read_only else files.open_on_demand(path)
        try:
            size_bytes = self.file.size()
        except Exception:
            self.file.close()
            raise
        self.count = size_bytes // self.LAYOUT.size
        # One attribute, because other threads read it while an entry is added or written.
        self._tail = self.count, b""
        """The number of entries in the file, and the bytes of the entries after them."""
        self._size_remainder = size_bytes % self.LAYOUT.size
        self.max_entries = max_bytes // self.LAYOUT.size
        # A crash can leave a part of an entry, which the next flush removes.
        self._torn = self._size_remainder != 0
        self.last_entry = self._read_last_entry()
        """`empty_entry` while the index is empty."""

    @property
    def empty_entry(self) -> E:
        """The result of a lookup before the first entry."""
        raise NotImplementedError

    def entry(self, slot: int, *, nowait: bool = False) -> E:
        """Return the entry with number `slot`, counted from 0.

        Raises CorruptIndex; with `nowait`, also UncachedLookup.
        """
        raise NotImplementedError

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset`."""
        slot = self._floor_slot(self.OFFSET_FIELD, offset - 1 - self.base_offset)
        self.truncate_to_count(slot + 1)

    def truncate_to_count(self, count: int) -> None:
        """Keep the first `count` entries."""
        try:
            if count < self.count:
                self.count = count
                written, tail = self._tail
                if count < written:
                    self._torn = True  # If the truncation fails, the next flush repeats it.
                    written = count
                self._tail = written, tail[: (count - written) * self.LAYOUT.size]
            self.repair()
        finally:  # Even if the file could not be truncated, the count has changed.
            self.last_entry = self._read_last_entry()

    def repair(self) -> None:
        """Remove bytes that remain after a failed flush. Raises OSError."""
        if self._torn:
            self.file.truncate(self._tail[0] * self.LAYOUT.size)
            self._torn = False
            self._size_remainder = 0

    def flush(self) -> None:
        """Write the entries that are only in memory. If this raises OSError, they stay there."""
        written, tail = self._tail
        if not tail:
            return
        self.repair()  # Otherwise, the entries would follow bytes that a failed flush has left.
        try:
            self.file.append(tail)
        except Exception:  # After any error, a part of the entries may be in the file.
            self._torn = True
            with contextlib.suppress(Exception):
                self.repair()
            raise
        self._tail = written + len(tail) // self.LAYOUT.size, b""

    def close(self) -> None:
        """Close the file, without writing the entries that are only in memory."""
        self.file.close()

    def _append(self, *fields: int) -> None:
        """Add one entry at the end, in memory."""
        written, tail = self._tail
        self._tail = written, tail + self.LAYOUT.pack(*fields)
        # Only now, because other threads read the entries below the count.
        self.count += 1

    def _fields(self, slot: int, nowait: bool) -> tuple[Any, ...]:
        """Return the fields of an entry.

        Raises CorruptIndex if the file is too short; with `nowait`, UncachedLookup.
        """
        return self.LAYOUT.unpack(self._read(slot, slot + 1, nowait))

    def _floor_slot(self, field: int, key: int, *, nowait: bool = False) -> int:
        """Return the last slot with a `field` <= `key`, or -1 if the field is larger in all slots.

        O(log n): one pread for each halving until 512 entries remain, then one for these entries.
        With `nowait`, raises UncachedLookup.
        """
        if not self.count:
            return -1
        low, high = 0, self.count  # The fields below `low` are <= key; from `high` on, > key.
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self._fields(middle, nowait)[field] <= key:
                low = middle + 1
            else:
                high = middle
        block, start = self._read(low, high, nowait), low
        while low < high:
            middle = (low + high) // 2
            entry = self.LAYOUT.unpack_from(block, (middle - start) * self.LAYOUT.size)
            if entry[field] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _check_size(self) -> None:
        """Raise CorruptIndex if the file is not a whole number of entries."""
        if self._size_remainder:
            raise CorruptIndex(
                f"{self.file.path} ends with {self._size_remainder} bytes of an incomplete entry"
            )

    def _read(self, start: int, end: int, nowait: bool) -> Buffer:
        written, tail = self._tail
        size = self.LAYOUT.size
        if end <= written:
            return self._read_file(start, end, nowait)
        in_memory = tail[max(start - written, 0) * size : (end - written) * size]
        # A truncation in another thread lowers the count first.
        if len(in_memory) != (end - max(start, written)) * size:
            raise CorruptIndex(f"{self.file.path} has no entry {end - 1}")
        if start >= written:
            return in_memory
        return b"".join((self._read_file(start, written, nowait), in_memory))

    def _read_file(self, start: int, end: int, nowait: bool) -> Buffer:
        size = self.LAYOUT.size
        if nowait:
            cached = self.file.pread_nowait((end - start) * size, start * size)
            # The job reads all entries, because each step of the bisection may need a different
            # page.
            if cached is None:
                raise uncached_range(self.file, 0, end * size)
            return cached
        data = self.file.pread((end - start) * size, start * size)
        if len(data) != (end - start) * size:
            raise CorruptIndex(f"{self.file.path} is too short for {end} entries")
        return data

    def _read_last_entry(self) -> E:
        return self.entry(self.count - 1) if self.count else self.empty_entry
