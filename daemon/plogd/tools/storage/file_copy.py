"""Copy a log's files; the copies share blocks where the file system supports this.

The functions first try a single `FICLONE`: on btrfs, xfs and some other file systems, the copy then
shares the blocks and takes almost no time. Otherwise, they use ``copy_file_range`` for each extent,
or plain reads and writes if that is not supported. Holes are preserved. The caller decides which
files to copy. Linux only.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator

_FICLONE = 0x40049409  # From linux/fs.h; Python's fcntl module contains it from version 3.12 on.
_STEP_BYTES = 8 << 20
"""Number of bytes after which progress is reported."""
# The errors of kernels and file systems that do not support these calls for two files.
_CANNOT_CLONE = {
    errno.EINVAL,
    errno.ENOSYS,
    errno.ENOTTY,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.ETXTBSY,
    errno.EXDEV,
}


def copy_file(source: str, target: str, progress: Callable[[int], None]) -> None:
    """Make `target`, which must not exist, a durable copy of `source` with the same file times.

    `progress` is called after each step with the number of bytes. Raises OSError.
    """
    from_fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        to_fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            status = os.fstat(from_fd)
            size = status.st_size
            if clone(from_fd, to_fd):
                progress(size)
            else:
                # The bytes that are not copied below become holes.
                os.ftruncate(to_fd, size)
                done = 0
                for start, end in data_extents(from_fd, size):
                    progress(start - done)
                    _copy_range(from_fd, to_fd, start, end, progress)
                    done = end
                progress(size - done)
            # Retention uses the modification time of segments without timestamps. It is set before
            # fsync, which also makes it durable.
            os.utime(to_fd, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(to_fd)
        finally:
            os.close(to_fd)
    finally:
        os.close(from_fd)


def clone(from_fd: int, to_fd: int) -> bool:
    """Make `to_fd` share the blocks of `from_fd`; return False if that is not supported."""
    try:
        fcntl.ioctl(to_fd, _FICLONE, from_fd)
    except OSError as error:
        if error.errno not in _CANNOT_CLONE:
            raise
        return False
    return True


def data_extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the extents with data as (start, end); the file has holes between them."""
    position = 0
    while position < size:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # The rest of the file is a hole.
            if error.errno != errno.EINVAL:
                raise
            yield position, size  # The file system does not support holes.
            return
        end = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        yield start, end
        position = end


def _copy_range(
    from_fd: int, to_fd: int, start: int, end: int, progress: Callable[[int], None]
) -> None:
    position = start
    in_kernel = True
    while position < end:
        step = min(_STEP_BYTES, end - position)
        if in_kernel:
            try:
                copied = os.copy_file_range(from_fd, to_fd, step, position, position)
            except OSError as error:
                if error.errno not in _CANNOT_CLONE:
                    raise
                # For example, copy_file_range works between two file systems only since Linux 5.3.
                in_kernel = False
                continue
        else:
            copied = os.pwrite(to_fd, os.pread(from_fd, step, position), position)
        # Otherwise, the loop would never end.
        if not copied:
            raise OSError(errno.EIO, "the file was truncated while it was copied")
        progress(copied)
        position += copied


def can_clone(source: str, target_dir: str) -> bool:
    """Return whether a copy of `source` in `target_dir` would share its blocks."""
    probe = os.path.join(target_dir, ".plog-import-probe")
    from_fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # An earlier import may have been killed before it removed its probe.
        to_fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            return clone(from_fd, to_fd)
        finally:
            os.close(to_fd)
            os.unlink(probe)
    finally:
        os.close(from_fd)
