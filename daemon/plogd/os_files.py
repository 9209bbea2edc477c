"""The Files port, implemented with the operating system: the log makes all its file calls here.

Linux only, like the rest of the daemon. `plogd.ports.File` and `Files` define the calls. The
simulator's implementation is tests/helpers/sim/sim_files.py, and one test checks both.
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
"""Distance between the pages that `cached` probes: half of the kernel's default read-ahead."""

_SYNC_FS_TYPES = frozenset({"ext4", "xfs"})
_SYNC_FS_KERNEL = (5, 8)
"""The first kernel version whose ``syncfs`` reports a write-back error to each descriptor opened
before the error."""

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_SPARE_PAUSE_S = 0.02
_SPARE_ATTEMPTS = 1_500
"""With the pause, this is half a minute, as long as a client waits for a produce response. Only
directory syncs wait that long."""

# From the kernel's fcntl.h, fs.h and falloc.h; Python's os module lacks these constants.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_KEEP_SIZE = 1

_libc = ctypes.CDLL(None, use_errno=True)


class _Descriptor(int):
    """A descriptor that is closed when its last reference is dropped.

    A call that uses it holds a reference, so a file can be closed while another thread reads it:
    the kernel cannot reuse the number before that read has ended.
    """

    __slots__ = ()

    # A default argument, because the globals may be gone when the interpreter exits.
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self)


_RELEASED_FROM_BYTES = 64 * 1024
"""Less space after the end of a file may be a part of its last block."""


_DROPPED_UNIT_BYTES = 1 << 21
"""At least the largest group of pages (folio) that the page cache uses."""


class OsFile:
    """An open file; see `plogd.ports.File`. Any thread may use it.

    After the last `close`, a call raises OSError (EBADF) and does not affect any other file.
    """

    __slots__ = ("_fd", "_holders", "_lock", "_sync_error", "_sync_lock", "path")

    def __init__(self, path: str, flags: int) -> None:
        self._fd: int = _Descriptor(os.open(path, flags | os.O_CLOEXEC, 0o644))
        self._holders = 1
        self._lock = threading.Lock()
        # A separate lock, because a sync can take seconds, during which readers retain the file.
        self._sync_lock = threading.Lock()
        self._sync_error: OSError | None = None
        self.path = path

    def fileno(self) -> int:
        """Return the descriptor for sendfile; it stays open while the result is referenced."""
        return self._fd

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end; see `plogd.ports.File.append`."""
        # One reference for all writes, so that a close in between does not affect any of them.
        fd = self._fd
        written = os.write(fd, data)
        if written != len(data):
            view = memoryview(data)
            # A short write: the disk is full, or a signal arrived.
            while written < len(view):
                written += os.write(fd, view[written:])

    def pread(self, length: int, position: int) -> bytes:
        """Read up to `length` bytes from `position`; fewer only at the end of the file."""
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
        """Read `length` bytes from `position`; return None unless all are in the page cache.

        On a file system without support for RWF_NOWAIT, this is an ordinary read.
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
        # A short read stops at the first page that is not cached, or at the end of the file.
        return data if nbytes == length else None

    def size(self) -> int:
        """Return the size in bytes."""
        return os.fstat(self._fd).st_size

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file to `size_bytes`."""
        os.ftruncate(self._fd, size_bytes)

    def reserve(self, nbytes: int) -> bool:
        """Reserve space after the end; return False if the disk is full or this is unsupported."""
        # ctypes would pass a Python int as a 32-bit int.
        size = ctypes.c_int64(self.size())
        length = ctypes.c_int64(nbytes)
        return bool(_libc.fallocate64(self._fd, _KEEP_SIZE, size, length) == 0)

    def release(self) -> None:
        """Release the space after the end of the file."""
        found = os.fstat(self._fd)
        # Truncating to the same size releases these blocks, but also changes the modification time,
        # on which retention may rely.
        if found.st_blocks * 512 >= found.st_size + _RELEASED_FROM_BYTES:
            os.ftruncate(self._fd, found.st_size)

    def sync(self) -> None:
        """Make the whole file durable. After a failure, every later call also fails."""
        # The kernel reports a write-back error once per descriptor and marks the lost pages clean.
        # A sync round and a seal may sync one file concurrently: without the stored error, one of
        # them would see the failure and the other would acknowledge lost records.
        with self._sync_lock:
            if self._sync_error is not None:
                raise OSError(self._sync_error.errno, "an earlier sync failed", self.path)
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                self._sync_error = error
                raise

    def cached(self, position: int, length: int) -> bool:
        """Return whether these bytes seem to be in the page cache: probe a page every 64 KiB.

        On a file system without support for RWF_NOWAIT, the result is True: a probe reveals nothing
        there, and any read may wait.
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

    def drop_cache(self, position: int = 0) -> None:
        """Drop clean pages from the page cache, from `position` or a little before it."""
        # The kernel keeps a page, or a group of pages, that is only partly in the range.
        start = position - position % _DROPPED_UNIT_BYTES
        os.posix_fadvise(self._fd, start, 0, os.POSIX_FADV_DONTNEED)

    @property
    def is_open(self) -> bool:
        """Whether the file has a descriptor."""
        return self._fd >= 0

    def retain(self) -> File:
        """Add a holder; return this file."""
        with self._lock:
            assert self._holders, f"{self.path} is closed"
            self._holders += 1
        return self

    def try_retain(self) -> bool:
        """Add a holder; return False if the last holder has closed the file."""
        with self._lock:
            if not self._holders:
                return False
            self._holders += 1
        return True

    def retain_for_writing(self, *, is_reserved: bool = False) -> File:
        """Retain the file, which keeps its descriptor anyway."""
        return self.retain()

    def end_writing(self) -> None:
        """Do nothing: the file keeps its descriptor until it is closed."""

    def close(self) -> None:
        """Remove a holder; the last holder closes the descriptor."""
        with self._lock:
            assert self._holders, f"{self.path} is closed"
            self._holders -= 1
            if not self._holders:
                # A call in progress in another thread has its own reference, so the kernel closes
                # the descriptor only after it. Calling os.close here would close it immediately.
                self._fd = -1

    def __repr__(self) -> str:
        return f"OsFile({self.path!r}, fd={self._fd})"


class _SpareDescriptor:
    """A descriptor that is kept open so that it can be used when no other descriptor is left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._take()

    def lend(self, function: Callable[[], None]) -> None:
        """Release the spare descriptor and call `function`, which needs one.

        If another thread takes the descriptor first, the call is retried. Raises the last OSError
        from `function` when all attempts have failed.
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
        """Close the spare descriptor."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _take(self) -> None:
        try:
            self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        # The next call to `lend` tries again.
        except OSError:
            self._fd = None


class OsFiles:
    """The file systems of this machine; see `plogd.ports.Files`. Any thread may use it."""

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
        """Open a file for append and read; create it if it does not exist."""
        # O_APPEND, so that a write goes to the end even if the file is also open elsewhere.
        return OsFile(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def open_existing(self, path: str) -> File:
        """Open an existing file for append and read. Raises FileNotFoundError."""
        return OsFile(path, os.O_RDWR | os.O_APPEND)

    def open_on_demand(self, path: str) -> File:
        """Open a file as `open_append` does; its descriptor may be closed while it is not used."""
        return self._pool.open(path)

    def open_read(self, path: str) -> File:
        """Open a file for reading. Raises FileNotFoundError."""
        return OsFile(path, os.O_RDONLY)

    def read_file(self, path: str) -> bytes:
        """Return the content of a small file. Raises FileNotFoundError."""
        with open(path, "rb") as file:
            return file.read()

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target`, replacing an existing file."""
        os.rename(source, target)

    def exchange(self, first: str, second: str) -> None:
        """Exchange two names atomically. Raises OSError if the file system cannot do this."""
        paths = (os.fsencode(first), os.fsencode(second))
        # Part of glibc since version 2.28.
        if not hasattr(_libc, "renameat2"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), first, None, second)
        if _libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), first, None, second)

    def unlink(self, path: str) -> None:
        """Remove a file's name. Raises FileNotFoundError."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Create a directory and its missing parents, if it does not exist."""
        try:
            os.mkdir(path)  # makedirs looks up the parent first, which usually exists.
        except (FileNotFoundError, FileExistsError):
            os.makedirs(path, exist_ok=True)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        """Return whether a file or directory has this name."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """Return whether this name is a directory."""
        return os.path.isdir(path)

    def modified_ms(self, path: str) -> int:
        """Return the time of the last write in wall-clock milliseconds."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable, even if the process is out of descriptors."""
        # Otherwise a lack of descriptors would lose written data or take the log directory offline.
        try:
            _sync_dir(path)
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS:
                raise
            self._spare.lend(lambda: _sync_dir(path))

    def sync_fs(self, path: str) -> None:
        """Make the whole file system that holds `path` durable.

        Reports every write-back error since the first call to `supports_sync_fs` for that file
        system.
        """
        _sync_fs(self._sync_fs_fd(path), path)

    def sync_fs_apart(self, path: str) -> None:
        """Sync as `sync_fs` does, without consuming an error that `sync_fs` has yet to report."""
        # The kernel reports an error once per descriptor. A new descriptor also reports an error
        # that no other descriptor has reported.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _sync_fs(fd, path)
        finally:
            os.close(fd)

    def supports_sync_fs(self, path: str) -> bool:
        """Return whether `sync_fs` is reliable for `path`. Call this before the first write."""
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
        """Return a descriptor on the file system, which is kept open."""
        device = self.device(path)
        # The kernel reports only errors that occurred after the descriptor was opened, so the first
        # descriptor of each file system is kept.
        fd = self._sync_fs_fd_by_device.get(device)
        if fd is None:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._sync_fs_fd_by_device[device] = fd
        return fd

    def device(self, path: str) -> int:
        """Return the device number of the file system that holds `path` (st_dev)."""
        return os.stat(path).st_dev

    def space(self, path: str) -> DiskSpace:
        """Return the size and free space (for non-root users) of the file system of `path`."""
        found = os.statvfs(path)
        return DiskSpace(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)

    def lock(self, path: str) -> Callable[[], None]:
        """Lock `path`; return a function that unlocks it. Raises BlockingIOError if locked."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # The kernel releases the lock when the process ends for any reason.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return lambda: os.close(fd)

    def close(self) -> None:
        """Close the descriptors kept for `sync_fs` and `sync_dir`."""
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
        # A crash can lose a new, renamed or removed name until its directory is synced.
        os.fsync(fd)
    finally:
        os.close(fd)


def _file_system_type(device: int) -> str:
    """Return the type ("ext4", …) of the mounted file system `device`; "" if it is not found."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            # The fields are: id parent major:minor root mount-point options [optional fields] -
            # type source …
            fields = line.split()
            if fields[2] == wanted:
                return fields[fields.index("-") + 1]
    return ""
