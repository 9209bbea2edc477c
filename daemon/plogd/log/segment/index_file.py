"""A sparse index on disk: fixed-size entries, appended in rising order, found by bisection.

What `OffsetIndex` and `TimeIndex` share. No mmap: an entry is one small append, a look-up a few
preads, and the last entry is kept in memory because most look-ups want it. The file holds entries
only; Kafka preallocates an active index with zeros and trims it when the segment is rolled, so both
read each other's files after a clean stop.

An index may be lost or damaged without harm: it is rebuilt from the ``.log``
(segment_recovery.py), and whoever looks something up checks what it finds there.

Source: Kafka 3.9 AbstractIndex.
Invariant: an append that fails leaves the entries as they were.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any

from plog.errors import PlogError
from plogd.log.segment.cold_read import cold_range
from plogd.ports import Buffer, File, Files

_BLOCK_ENTRIES = 512
"""Below so many candidates one pread fetches them all."""

MAX_RELATIVE_OFFSET = 2**31 - 1
"""The furthest an offset may lie from its segment's base: entries hold the distance as int32."""


class CorruptIndex(PlogError):
    """An index file cannot be what was written: rebuild it from the log."""


def _open_read(files: Files, path: str) -> File:
    try:
        return files.open_read(path)
    except FileNotFoundError:
        raise CorruptIndex(f"{path} is missing") from None


class IndexFile:
    """The entries of one index file. Appends come from one thread, look-ups from any."""

    __slots__ = ("_layout", "_size_remainder", "_torn", "count", "file", "max_entries")

    def __init__(
        self,
        files: Files,
        path: str,
        layout: struct.Struct,
        max_bytes: int,
        *,
        read_only: bool = False,
    ) -> None:
        """Raises OSError; with `read_only`, CorruptIndex if there is no such file."""
        self.file: File = _open_read(files, path) if read_only else files.open_on_demand(path)
        self._layout = layout
        try:
            size_bytes = self.file.size()
        except Exception:
            self.file.close()
            raise
        self.count = size_bytes // layout.size
        self._size_remainder = size_bytes % layout.size
        self.max_entries = max_bytes // layout.size
        self._torn = self._size_remainder != 0

    def append(self, *fields: int) -> None:
        """Write one entry at the end. Whatever is raised, nothing was appended; see `repair`."""
        if self._torn:
            self._cut()
        try:
            self.file.append(self._layout.pack(*fields))
        except Exception:  # After any error, part of it may be in the file.
            self._torn = True
            with contextlib.suppress(Exception):
                self._cut()
            raise
        self.count += 1

    def repair(self) -> None:
        """Cut what a failed append has left, if it could not be cut then. Raises OSError."""
        if self._torn:
            self._cut()

    def entry(self, slot: int, *, nowait: bool = False) -> tuple[Any, ...]:
        """The fields of one entry. Raises CorruptIndex if it is not there; ColdRead."""
        return self._layout.unpack(self._read(slot, slot + 1, nowait))

    def floor_slot(self, field: int, key: int, *, nowait: bool = False) -> int:
        """The last slot whose `field` is <= `key`; -1 if there is none.

        O(log n), one pread for each halving until 512 entries are left, and one for those. Raises
        ColdRead, with `nowait`.
        """
        if not self.count:
            return -1  # There is nothing to read, nor to bring into the page cache.
        low, high = 0, self.count  # Slots below low are <= key, from high on > key.
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self.entry(middle, nowait=nowait)[field] <= key:
                low = middle + 1
            else:
                high = middle
        block, start = self._read(low, high, nowait), low
        while low < high:
            middle = (low + high) // 2
            entry = self._layout.unpack_from(block, (middle - start) * self._layout.size)
            if entry[field] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count < self.count or self._torn:
            self.count = min(count, self.count)
            self._torn = True
            self._cut()

    def check_size(self) -> None:
        """Raises CorruptIndex if the file is not a whole number of entries."""
        if self._size_remainder:
            raise CorruptIndex(
                f"{self.file.path}: {self._size_remainder} bytes more than whole entries"
            )

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()

    def _read(self, start: int, end: int, nowait: bool) -> Buffer:
        size = self._layout.size
        if nowait:
            cached = self.file.pread_nowait((end - start) * size, start * size)
            if cached is None:
                raise cold_range(self.file, 0, self.count * size)
            return cached
        data = self.file.pread((end - start) * size, start * size)
        if len(data) != (end - start) * size:
            raise CorruptIndex(f"{self.file.path} is shorter than its {self.count} entries")
        return data

    def _cut(self) -> None:
        self.file.truncate(self.count * self._layout.size)
        self._torn = False
        self._size_remainder = 0
