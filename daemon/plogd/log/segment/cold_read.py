"""Look-ups on the reactor that would have to wait: what a job has to do first.

A look-up made for the reactor (``nowait``) reads nothing that it would have to wait for. It raises
`ColdRead` instead, whose `warm` is a job's work; then the look-up is made again. A fetch may need
that a few times, each time a step further: the index is opened, its entries, the batches.
`LogManager.begin_read` starts the jobs. Where the index or the batches are damaged, log_segment.py
raises its `UncheckedSegment`.

Raised by segment_indexes.py, index_file.py and file_records.py, caught by ReplicaManager.
Invariant: the file stays open until `warm` is done, so `warm` is called exactly once.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from plogd.ports import File, Files

_PIECE_BYTES = 128 * 1024
_DELETED = (errno.ENOENT, errno.EBADF)
"""Errors of a file whose segment was deleted; one that was open in between is closed for good."""


class ColdRead(Exception):
    """What was asked for is not in the page cache. `warm` brings it there, or raises OSError."""

    def __init__(self, warm: Callable[[], None]) -> None:
        super().__init__("not in the page cache")
        self.warm = warm


def cold_range(file: File, position: int, nbytes: int) -> ColdRead:
    """These bytes have to be read, and the file opened first if it is not open."""
    held = file.retain() if file.is_open else None

    def warm() -> None:
        try:
            opened = held or file.retain()
        except OSError as error:
            if error.errno in _DELETED:
                return  # The look-up itself finds out.
            raise
        try:
            _read_through(opened, position, position + nbytes)
        finally:
            opened.close()

    return ColdRead(warm)


def cold_file(files: Files, path: str) -> ColdRead:
    """This file is not even open; it may be gone when its turn comes."""

    def warm() -> None:
        try:
            file = files.open_read(path)
        except FileNotFoundError:
            return  # Deleted meanwhile, or never made: the look-up itself will find out.
        try:
            _read_through(file, 0, file.size())
        finally:
            file.close()

    return ColdRead(warm)


def _read_through(file: File, start: int, end: int) -> None:
    for position in range(start, end, _PIECE_BYTES):
        file.pread(min(_PIECE_BYTES, end - position), position)
