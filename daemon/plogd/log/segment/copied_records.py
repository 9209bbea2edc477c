"""A copy of a part of a ``.log`` file, for a response that cannot keep the file open.

Each part of a fetch response keeps its file open until it is sent, and a fetch may read thousands
of partitions. When too many files are open for this reason, short parts are copied
(`FileRecords.region`). `CopiedRecords` has the methods of `plogd.files.File` that are used to send
a short part.
"""

from __future__ import annotations

from plogd.ports import Buffer

COPIED_MAX_BYTES = 64 * 1024
"""Largest part that is copied: a connection reads parts of this size into memory anyway, to send
several of them at once (net/output_queue.py)."""


class CopiedRecords:
    """The bytes of the file `path` from `start` on."""

    __slots__ = ("_data", "_start", "path")

    def __init__(self, path: str, start: int, data: Buffer) -> None:
        self.path = path
        self._start = start
        self._data = bytes(data)

    def retain(self) -> CopiedRecords:
        """Return this copy, which needs no holder."""
        return self

    def close(self) -> None:
        """Do nothing: there is no descriptor."""

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes from `position` in the file."""
        start = position - self._start
        return self._data[start : start + length]

    def pread_nowait(self, length: int, position: int) -> bytes:
        """Return the same as `pread`."""
        return self.pread(length, position)

    def cached(self, position: int, length: int) -> bool:
        """Return True: the bytes are in memory."""
        return True
