"""Lookups on the reactor that would wait for the disk, and the jobs that read the data first.

A lookup with ``nowait`` reads only bytes in the page cache. If it needs other bytes, it raises
`UncachedLookup`; a job then calls `warm`, and the lookup is retried. A fetch may need several
retries: one to open the index, one to read the entries and one to read the batches.
`LogManager.begin_read` submits the jobs. If the index or the batches are damaged, log_segment.py
raises `UncheckedSegment` instead. net/uncached_reads.py handles the records that a response sends.

Raised by segment_indexes.py, index_file.py and file_records.py; caught by the coordinators'
shard_loader.py and replica/fetch/fetch_reader.py. Invariant: `warm` is called exactly once, because
it closes the file.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from plogd.ports import File, Files

_PIECE_BYTES = 128 * 1024
_DELETED = (errno.ENOENT, errno.EBADF)
"""Errors for a file of a deleted segment: it is missing, or its last holder has closed it."""


class UncachedLookup(Exception):
    """The requested bytes are not in the page cache. `warm` reads them, or raises OSError."""

    def __init__(self, warm: Callable[[], None]) -> None:
        super().__init__("not in the page cache")
        self.warm = warm


def uncached_range(file: File, position: int, nbytes: int) -> UncachedLookup:
    """Return an UncachedLookup for these bytes; `warm` opens the file if necessary."""
    # Only `warm` may open the file, because that may block.
    held = file.retain() if file.is_open else None

    def warm() -> None:
        try:
            opened = held or file.retain()
        except OSError as error:
            if error.errno in _DELETED:
                return  # The retried lookup reports the missing file.
            raise
        try:
            _read_through(opened, position, position + nbytes)
        finally:
            opened.close()

    return UncachedLookup(warm)


def uncached_file(files: Files, path: str) -> UncachedLookup:
    """Return an UncachedLookup for a whole file that is not open."""

    def warm() -> None:
        try:
            file = files.open_read(path)
        except FileNotFoundError:
            return  # Deleted or never created: the retried lookup reports the missing file.
        try:
            _read_through(file, 0, file.size())
        finally:
            file.close()

    return UncachedLookup(warm)


def _read_through(file: File, start: int, end: int) -> None:
    # The bytes are only needed in the page cache, so a small buffer suffices.
    for position in range(start, end, _PIECE_BYTES):
        file.pread(min(_PIECE_BYTES, end - position), position)
