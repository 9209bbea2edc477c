"""An open file of the simulated file system; sim_files.py describes the fault model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plogd.file_pool import PooledFile
from plogd.ports import Buffer, File
from tests.helpers.sim.sim_disk import Inode

if TYPE_CHECKING:
    from tests.helpers.sim.sim_files import SimFiles


class SimFile:
    """An open `Inode`; see `plogd.ports.File`."""

    def __init__(self, files: SimFiles, path: str, inode: Inode) -> None:
        self.path = path
        self._files = files
        self._inode = inode
        self._holders = 1
        self._sync_error: OSError | None = None

    def fileno(self) -> int:
        return -1

    def append(self, data: Buffer) -> None:
        self._check()
        # Written pages stay in the page cache.
        self._inode.is_warm = self._inode.is_warm or not self._inode.content
        self._files.append(self.path, self._inode, bytes(data))

    def pread(self, length: int, position: int) -> bytes:
        self._check()
        self._files.reading("pread", self.path)
        self._inode.is_warm = True
        return bytes(self._inode.content[position : position + length])

    def pread_nowait(self, length: int, position: int) -> Buffer | None:
        self._check()
        if not (self._files.everything_cached or self._inode.is_warm):
            return None
        data = self.pread(length, position)
        return data if len(data) == length else None

    def size(self) -> int:
        self._check()
        return len(self._inode.content)

    def truncate(self, size_bytes: int) -> None:
        self._check()
        with self._files.operation("truncate", self.path):
            self._inode.truncate(size_bytes)
            self._inode.modified_ms = self._files.now_ms()

    def reserve(self, nbytes: int) -> bool:
        self._check()
        return self._files.reserve(self._inode, nbytes)

    def release(self) -> None:
        self._check()
        self._inode.reserved_end = 0

    def sync(self) -> None:
        self._check()
        if self._sync_error is not None:
            raise OSError(self._sync_error.errno, "an earlier sync failed", self.path)
        try:
            self._files.sync(self.path, self._inode)
        except OSError as error:
            self._sync_error = error
            raise

    def cached(self, position: int, length: int) -> bool:
        self._check()
        return self._files.everything_cached

    def drop_cache(self, position: int = 0) -> None:
        self._check()
        self._inode.drop_cache(position)

    @property
    def is_open(self) -> bool:
        return self._holders > 0

    def retain(self) -> File:
        assert self._holders, f"{self.path} is closed"
        self._holders += 1
        return self

    def try_retain(self) -> bool:
        self._holders += self._holders > 0
        return self._holders > 0

    def retain_for_writing(self, *, is_reserved: bool = False) -> File:
        return self.retain()

    def end_writing(self) -> None:
        pass

    def close(self) -> None:
        assert self._holders, f"{self.path} is closed"
        self._holders -= 1

    def _check(self) -> None:
        assert self._holders, f"{self.path} is closed"


def open_file(file: File) -> SimFile:
    """Return the open file behind a file that is opened on demand."""
    assert isinstance(file, PooledFile)
    assert isinstance(file.opened, SimFile)
    return file.opened
