"""The `Files` port: file systems and open files, as the log uses them.

`plogd.os_files` implements it over the operating system, tests/helpers/sim_files.py in memory with
faults; tests/unit/test_os_files.py checks both. A file opened with `open_on_demand` is a
`plogd.file_pool.PooledFile` in either. Import these names from `plogd.ports`.

Usable from any thread: jobs use files, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from plogd.descriptor_budget import DescriptorBudget

Buffer: TypeAlias = bytes | bytearray | memoryview


class File(Protocol):
    """An open file: appended at its end, read anywhere, counted: a reader outlives a close."""

    path: str

    def fileno(self) -> int:
        """The descriptor for sendfile; -1 where there is no kernel below (the simulator)."""
        ...

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end. On OSError a part of it may be there: truncate."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_nowait(self, length: int, position: int) -> Buffer | None:
        """`length` bytes from `position`, if all are in the page cache; else None."""
        ...

    def size(self) -> int:
        """Bytes in the file."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`."""
        ...

    def reserve(self, nbytes: int) -> bool:
        """Take room for `nbytes` behind the end, for appends to come; whether there was that much.

        Nothing of it shows in the file. A truncation gives it back. A job's work.
        """
        ...

    def sync(self) -> None:
        """Make all of the file durable (fdatasync). A job's work, never the reactor's.

        Raises OSError; from then on every time, for the kernel forgets what it could not write.
        """
        ...

    def cached(self, position: int, length: int) -> bool:
        """Whether these bytes are in the page cache, so that reading them cannot wait."""
        ...

    def drop_cache(self) -> None:
        """Forget cached clean pages, so that the next read comes from the disk itself."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it has a descriptor now, so that reading it need not open it first."""
        ...

    def retain(self) -> File:
        """Add a holder; return the file that stays open until that holder calls its `close`.

        Raises OSError if the file has to be opened for it and cannot be.
        """
        ...

    def try_retain(self) -> bool:
        """Add a holder of this file if it is open; False if its last holder has closed it."""
        ...

    def retain_for_writing(self, *, is_reserved: bool = False) -> File:
        """As `retain`, for a file that is being written: it keeps its descriptor meanwhile.

        Raises OSError (EMFILE) when logs have no descriptor left, unless the file `is_reserved`.
        """
        ...

    def end_writing(self) -> None:
        """What `retain_for_writing` returned is closed: the file may lose its descriptor."""
        ...

    def close(self) -> None:
        """Remove a holder; the last one closes the file. Each holder calls this once.

        A call that another thread makes meanwhile ends first; later ones raise OSError (EBADF).
        """
        ...


class DiskSpace(NamedTuple):
    """A file system's size, and the part of it that this process may still use."""

    total_bytes: int
    usable_bytes: int


class Files(Protocol):
    """A file system. A rename, a new name and a removed name last only after `sync_dir`."""

    descriptors: DescriptorBudget
    """How many descriptors logs, clients and the rest of the broker may have."""

    def open_append(self, path: str) -> File:
        """Open for append and read, creating an empty file if there is none."""
        ...

    def open_on_demand(self, path: str) -> File:
        """As `open_append`, for a file that may lose its descriptor while it is not used.

        Between calls only the files used last keep one; see `plogd.file_pool`.
        """
        ...

    def open_read(self, path: str) -> File:
        """Open for reading. Raises FileNotFoundError."""
        ...

    def read_file(self, path: str) -> bytes:
        """The whole of a small file. Raises FileNotFoundError."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give `source` the name `target`, replacing what was there."""
        ...

    def exchange(self, first: str, second: str) -> None:
        """Let two names of one file system change places, in one step.

        Raises OSError where the file system cannot (EINVAL), or a name is missing.
        """
        ...

    def unlink(self, path: str) -> None:
        """Remove a file's name. Raises FileNotFoundError."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a directory and its missing parents; harmless when it is there."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this name."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether this name is a directory."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written, wall-clock milliseconds."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable. A job's work."""
        ...

    def sync_fs(self, path: str) -> None:
        """Make the whole file system holding `path` durable (syncfs). A job's work."""
        ...

    def sync_fs_apart(self, path: str) -> None:
        """As `sync_fs`; an error that is heard here is still told to the callers of that."""
        ...

    def supports_sync_fs(self, path: str) -> bool:
        """Whether `sync_fs` may be trusted there: ext4 or xfs, Linux 5.8 or newer."""
        ...

    def device(self, path: str) -> int:
        """The number of the file system holding `path` (st_dev)."""
        ...

    def space(self, path: str) -> DiskSpace:
        """How large the file system holding `path` is, and what is left. A job's work."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock on `path`; the result lets go. Raises BlockingIOError if taken."""
        ...
