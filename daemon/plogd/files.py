"""The `Files` port: the file system calls and open files that the log uses.

`plogd.os_files` implements it with the operating system, and tests/helpers/sim/sim_files.py
implements it in memory, with faults; tests/unit/test_os_files.py checks both. In both,
`open_on_demand` returns a `plogd.file_pool.PooledFile`. Import these names from `plogd.ports`.

Any thread may use files, because jobs use them on their threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from plogd.descriptor_budget import DescriptorBudget

# collections.abc.Buffer requires Python 3.12.
Buffer: TypeAlias = bytes | bytearray | memoryview


class File(Protocol):
    """An open file with a reference count: append at the end, read anywhere.

    A reader that has retained the file can finish after the owner has closed it.
    """

    path: str

    def fileno(self) -> int:
        """Return the descriptor for sendfile; -1 in the simulator, which has no kernel."""
        ...

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end. After an OSError, truncate: part of it may be written."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Read up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_nowait(self, length: int, position: int) -> Buffer | None:
        """Read `length` bytes from `position`; return None unless all are in the page cache."""
        ...

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file to `size_bytes`."""
        ...

    def reserve(self, nbytes: int) -> bool:
        """Reserve `nbytes` after the end for later appends; return whether that succeeded.

        The file's size does not change, and a truncation releases the space. Call it in a job.
        """
        ...

    def release(self) -> None:
        """Release the space that `reserve` has reserved; the size of the file does not change.

        Call it only while nothing is appended.
        """
        ...

    def sync(self) -> None:
        """Make the whole file durable (fdatasync). Call it in a job, never on the reactor's thread.

        Raises OSError. After a failure, every call fails: the kernel drops pages that it failed to
        write, so a later success would prove nothing.
        """
        ...

    def cached(self, position: int, length: int) -> bool:
        """Return whether these bytes are in the page cache, so that a read does not wait."""
        ...

    def drop_cache(self, position: int = 0) -> None:
        """Drop clean pages from the page cache, so that the next read comes from the disk.

        Bytes before `position` may stay cached.
        """
        ...

    @property
    def is_open(self) -> bool:
        """Whether the file has a descriptor now, so that a read does not have to open it."""
        ...

    def retain(self) -> File:
        """Add a holder; return the file, which stays open until the holder calls its `close`.

        Raises OSError if the file is not open and cannot be opened.
        """
        ...

    def try_retain(self) -> bool:
        """Add a holder if the file is open; return False if its last holder has closed it."""
        ...

    def retain_for_writing(self, *, is_reserved: bool = False) -> File:
        """Retain a file that is being written, so that it keeps its descriptor.

        Raises OSError (EMFILE) if no descriptor is left for logs, unless `is_reserved` is set.
        """
        ...

    def end_writing(self) -> None:
        """Allow the descriptor to be closed. Close the file from `retain_for_writing` first."""
        ...

    def close(self) -> None:
        """Remove a holder; the last holder closes the file. Each holder calls this once.

        A call in progress in another thread completes first; later calls raise OSError (EBADF).
        """
        ...


class DiskSpace(NamedTuple):
    """The size of a file system, and the free space that this process may use."""

    total_bytes: int
    usable_bytes: int


class Files(Protocol):
    """A file system. New, renamed and removed names are durable only after `sync_dir`."""

    descriptors: DescriptorBudget
    """Divides the descriptors among logs, clients and the rest of the broker."""

    def open_append(self, path: str) -> File:
        """Open a file for append and read; create it if it does not exist."""
        ...

    def open_on_demand(self, path: str) -> File:
        """Open a file as `open_append` does; its descriptor may be closed while it is not used.

        Between calls, only the most recently used files keep their descriptors; see
        `plogd.file_pool`.
        """
        ...

    def open_read(self, path: str) -> File:
        """Open a file for reading. Raises FileNotFoundError."""
        ...

    def read_file(self, path: str) -> bytes:
        """Return the content of a small file. Raises FileNotFoundError."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target`, replacing an existing file."""
        ...

    def exchange(self, first: str, second: str) -> None:
        """Exchange two names in one file system atomically.

        Raises OSError if the file system does not support this (EINVAL), or if a name does not
        exist.
        """
        ...

    def unlink(self, path: str) -> None:
        """Remove a file's name. Raises FileNotFoundError."""
        ...

    def mkdir(self, path: str) -> None:
        """Create a directory and its missing parents, if it does not exist."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory has this name."""
        ...

    def is_dir(self, path: str) -> bool:
        """Return whether this name is a directory."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return the time of the last write in wall-clock milliseconds."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable. Call it in a job."""
        ...

    def sync_fs(self, path: str) -> None:
        """Make the whole file system that holds `path` durable (syncfs). Call it in a job."""
        ...

    def sync_fs_apart(self, path: str) -> None:
        """Sync as `sync_fs` does, without consuming an error that `sync_fs` has yet to report."""
        ...

    def supports_sync_fs(self, path: str) -> bool:
        """Return whether `sync_fs` is reliable for `path`: ext4 or xfs, Linux 5.8 or newer."""
        ...

    def device(self, path: str) -> int:
        """Return the device number of the file system that holds `path` (st_dev)."""
        ...

    def space(self, path: str) -> DiskSpace:
        """Return the size and free space of the file system that holds `path`. Call it in a job."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Lock `path`; return a function that unlocks it. Raises BlockingIOError if locked."""
        ...


def size_of(files: Files, path: str) -> int:
    """Return the size of a file that is not open. Raises FileNotFoundError."""
    file = files.open_read(path)
    try:
        return file.size()
    finally:
        file.close()
