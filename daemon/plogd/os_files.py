"""The Files port over the real operating system: the only file calls of the log.

Linux only, like the rest of the daemon. Files are opened for append, so that every write lands at
the end whoever else has the file open; reads give their position and move nothing. A descriptor
is counted: a fetch answer under way keeps a deleted segment readable.

Source: `plogd.ports.File` and `Files` say what each call means; the simulator's twin is
tests/helpers/sim_files.py, and one test holds both to it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import os
import re
import threading
import time
from collections.abc import Callable

from plogd.descriptor_budget import DescriptorBudget
from plogd.file_pool import FilePool
from plogd.files import Buffer, DiskSpace, File

_PROBE_BYTES = 64 * 1024
"""Distance of the pages looked at by `cached`: half of what the kernel reads ahead by default."""

_SYNC_FS_TYPES = frozenset({"ext4", "xfs"})
_SYNC_FS_KERNEL = (5, 8)
"""Since then ``syncfs`` reports a write-back error to every descriptor opened before it."""

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_SPARE_PAUSE_S = 0.02
_SPARE_ATTEMPTS = 1_500
"""Half a minute, as long as a client waits for its produce; only syncs wait meanwhile."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_KEEP_SIZE = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _Descriptor(int):
    """A descriptor that is closed with its last reference.

    A call that uses it holds a reference, so a file can be closed while another thread reads it:
    the number is not given to another file before that read has ended.
    """

    __slots__ = ()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self)


class OsFile:
    """An open file; see `plogd.ports.File`. Usable from any thread.

    After its last `close`, a call raises OSError (EBADF) and touches no other file.
    """

    __slots__ = ("_fd", "_holders", "_lock", "_sync_error", "_sync_lock", "path")

    def __init__(self, path: str, flags: int) -> None:
        self._fd: int = _Descriptor(os.open(path, flags | os.O_CLOEXEC, 0o644))
        self._holders = 1
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._sync_error: OSError | None = None
        self.path = path

    def fileno(self) -> int:
        """The descriptor, for sendfile; it stays open while this object is referenced."""
        return self._fd

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end; see `plogd.ports.File.append`."""
        fd = self._fd  # One reference for all writes: a close in between affects none of them.
        written = os.write(fd, data)
        if written != len(data):
            view = memoryview(data)
            while written < len(view):  # A short write: the disk is full, or a signal came.
                written += os.write(fd, view[written:])

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        pieces = [data]
        missing = length - len(data)
        while missing and (data := os.pread(self._fd, missing, position + length - missing)):
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)

    def pread_nowait(self, length: int, position: int) -> Buffer | None:
        """`length` bytes from `position`, if all are in the page cache; else None.

        Where the file system cannot tell, it is a read as any other.
        """
        data = bytearray(length)
        try:
            nbytes = os.preadv(self._fd, [data], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.pread(length, position)
        return data if nbytes == length else None

    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._fd).st_size

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`."""
        os.ftruncate(self._fd, size_bytes)

    def reserve(self, nbytes: int) -> bool:
        """Take room behind the end; False where there is none, or the file system cannot."""
        size = ctypes.c_int64(self.size())
        length = ctypes.c_int64(nbytes)
        return bool(_libc.fallocate64(self._fd, _KEEP_SIZE, size, length) == 0)

    def sync(self) -> None:
        """Make all of the file durable. Once it has failed it fails for every caller.

        The kernel tells a write-back error once a descriptor and calls the lost pages clean. A sync
        round and a seal may sync one file at the same time: without this, one of them would hear
        of the error and the other acknowledge what is gone.
        """
        with self._sync_lock:
            if self._sync_error is not None:
                raise OSError(self._sync_error.errno, "a sync failed before", self.path)
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                self._sync_error = error
                raise

    def cached(self, position: int, length: int) -> bool:
        """Whether these bytes seem to be in the page cache: looks at a page each 64 KiB.

        Where the file system cannot tell, True: then every read may wait, and no look helps.
        """
        last = position + max(length, 1) - 1
        probe = bytearray(1)
        for place in (*range(position, last, _PROBE_BYTES), last):
            try:
                os.preadv(self._fd, [probe], place, os.RWF_NOWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                return True
        return True

    def drop_cache(self) -> None:
        """Forget cached clean pages."""
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    @property
    def is_open(self) -> bool:
        """Whether it has a descriptor."""
        return self._fd >= 0

    def retain(self) -> File:
        """Add a holder of this file, which is the result."""
        with self._lock:
            assert self._holders, f"{self.path} is closed"
            self._holders += 1
        return self

    def try_retain(self) -> bool:
        """Add a holder; False if the last one has closed the file."""
        with self._lock:
            if not self._holders:
                return False
            self._holders += 1
        return True

    def retain_for_writing(self, *, is_reserved: bool = False) -> File:
        """As `retain`: this file keeps its descriptor in any case."""
        return self.retain()

    def end_writing(self) -> None:
        """Nothing: it keeps its descriptor until it is closed."""

    def close(self) -> None:
        """One holder less; the last one closes the descriptor."""
        with self._lock:
            assert self._holders, f"{self.path} is closed"
            self._holders -= 1
            if not self._holders:
                self._fd = -1

    def __repr__(self) -> str:
        return f"OsFile({self.path!r}, fd={self._fd})"


class _SpareDescriptor:
    """A descriptor kept open for nothing, so that one can be had when there is none left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._take()

    def lend(self, function: Callable[[], None]) -> None:
        """Call `function`, which needs one. Others may be faster, so that it may have to wait.

        Raises its OSError when that has taken too long.
        """
        with self._lock:
            for attempt in itertools.count(1):
                self.close()
                try:
                    function()
                    return
                except OSError as error:
                    if error.errno not in _OUT_OF_DESCRIPTORS or attempt == _SPARE_ATTEMPTS:
                        raise
                finally:
                    self._take()
                time.sleep(_SPARE_PAUSE_S)

    def close(self) -> None:
        """Keep none any more."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _take(self) -> None:
        try:
            self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # Next time, perhaps.
            self._fd = None


class OsFiles:
    """The file systems of this machine; see `plogd.ports.Files`. Usable from any thread."""

    def __init__(self) -> None:
        self._sync_fs_fd_by_device: dict[int, int] = {}
        self._spare = _SpareDescriptor()
        self.descriptors = DescriptorBudget()
        self._pool = FilePool(
            create=lambda path: self.open_append(path),
            reopen=lambda path: self.open_existing(path),
            budget=self.descriptors,
            lock=threading.Lock(),
        )

    def open_append(self, path: str) -> File:
        """Open for append and read, creating an empty file if there is none."""
        return OsFile(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def open_existing(self, path: str) -> File:
        """As `open_append`, but raises FileNotFoundError for a missing file."""
        return OsFile(path, os.O_RDWR | os.O_APPEND)

    def open_on_demand(self, path: str) -> File:
        """As `open_append`, for a file that may lose its descriptor while it is not used."""
        return self._pool.open(path)

    def open_read(self, path: str) -> File:
        """Open for reading. Raises FileNotFoundError."""
        return OsFile(path, os.O_RDONLY)

    def read_file(self, path: str) -> bytes:
        """The whole of a small file. Raises FileNotFoundError."""
        with open(path, "rb") as file:
            return file.read()

    def rename(self, source: str, target: str) -> None:
        """Give `source` the name `target`, replacing what was there."""
        os.rename(source, target)

    def exchange(self, first: str, second: str) -> None:
        """Let two names change places in one step. Raises OSError where that cannot be done."""
        paths = (os.fsencode(first), os.fsencode(second))
        if not hasattr(_libc, "renameat2"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), first, None, second)
        if _libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), first, None, second)

    def unlink(self, path: str) -> None:
        """Remove a file's name. Raises FileNotFoundError."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Make a directory and its missing parents; harmless when it is there."""
        os.makedirs(path, exist_ok=True)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this name."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """Whether this name is a directory."""
        return os.path.isdir(path)

    def modified_ms(self, path: str) -> int:
        """When the file was last written, wall-clock milliseconds."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable; also where no descriptor is left for it.

        What is written already must not be lost, nor its directory given up, for want of one.
        """
        try:
            _sync_dir(path)
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS:
                raise
            self._spare.lend(lambda: _sync_dir(path))

    def sync_fs(self, path: str) -> None:
        """Make the whole file system holding `path` durable.

        Hears of every write-back error since `supports_sync_fs` was first asked about it.
        """
        _sync_fs(self._sync_fs_fd(path), path)

    def sync_fs_apart(self, path: str) -> None:
        """As `sync_fs`; an error that is heard here is still told to the callers of that.

        The kernel tells each descriptor, and a new one also of what nobody has heard of yet.
        """
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _sync_fs(fd, path)
        finally:
            os.close(fd)

    def supports_sync_fs(self, path: str) -> bool:
        """Whether `sync_fs` may be trusted there. Ask before the first write: see `sync_fs`."""
        release = re.match(r"(\d+)\.(\d+)", os.uname().release)
        if release is None or (int(release[1]), int(release[2])) < _SYNC_FS_KERNEL:
            return False
        if (
            not hasattr(_libc, "syncfs")
            or _file_system_type(self.device(path)) not in _SYNC_FS_TYPES
        ):
            return False
        self._sync_fs_fd(path)
        return True

    def _sync_fs_fd(self, path: str) -> int:
        """A descriptor on the file system, kept from the first call on: it collects errors."""
        device = self.device(path)
        fd = self._sync_fs_fd_by_device.get(device)
        if fd is None:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._sync_fs_fd_by_device[device] = fd
        return fd

    def device(self, path: str) -> int:
        """The number of the file system holding `path` (st_dev)."""
        return os.stat(path).st_dev

    def space(self, path: str) -> DiskSpace:
        """How large the file system holding `path` is, and what is left to other than root."""
        found = os.statvfs(path)
        return DiskSpace(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)

    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock on `path`; the result lets go. Raises BlockingIOError if taken.

        The kernel lets go when the process dies, however it does.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return lambda: os.close(fd)

    def close(self) -> None:
        """Let go of the descriptors kept for `sync_fs` and `sync_dir`."""
        self._spare.close()
        while self._sync_fs_fd_by_device:
            os.close(self._sync_fs_fd_by_device.popitem()[1])


def _sync_fs(fd: int, path: str) -> None:
    if _libc.syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def _sync_dir(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _file_system_type(device: int) -> str:
    """The type ("ext4", …) of the mounted file system with this number; "" if it is not found."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            # id parent major:minor root mount-point options [optional fields] - type source …
            fields = line.split()
            if fields[2] == wanted:
                return fields[fields.index("-") + 1]
    return ""
