"""Copying the files of a log: shared blocks where the file system can, holes kept as holes.

First one `FICLONE` is tried (btrfs, xfs and others then share the blocks, and a copy costs
nothing), then ``copy_file_range`` extent by extent, then plain reads and writes. Nothing here
decides what is copied. Linux only.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator

_FICLONE = 0x40049409
_STEP_BYTES = 8 << 20
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
    """Make `target`, which does not exist, a durable copy of `source`, as old as that.

    The age matters: retention goes by it where records have no timestamps. `progress` hears of
    bytes as they are done. Raises OSError.
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
                os.ftruncate(to_fd, size)
                done = 0
                for start, end in data_extents(from_fd, size):
                    progress(start - done)
                    _copy_range(from_fd, to_fd, start, end, progress)
                    done = end
                progress(size - done)
            os.utime(to_fd, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(to_fd)
        finally:
            os.close(to_fd)
    finally:
        os.close(from_fd)


def clone(from_fd: int, to_fd: int) -> bool:
    """Let `to_fd` share the blocks of `from_fd`; whether the file system could."""
    try:
        fcntl.ioctl(to_fd, _FICLONE, from_fd)
    except OSError as error:
        if error.errno not in _CANNOT_CLONE:
            raise
        return False
    return True


def data_extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has data, as (start, end); between them are holes."""
    position = 0
    while position < size:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # A hole up to the end.
            if error.errno != errno.EINVAL:
                raise
            yield position, size  # A file system without holes.
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
                in_kernel = False
                continue
        else:
            copied = os.pwrite(to_fd, os.pread(from_fd, step, position), position)
        if not copied:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        progress(copied)
        position += copied


def can_clone(source: str, target_dir: str) -> bool:
    """Whether copies of `source` in `target_dir` would share its blocks, hence take no room."""
    probe = os.path.join(target_dir, ".plog-import-probe")
    from_fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        to_fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            return clone(from_fd, to_fd)
        finally:
            os.close(to_fd)
            os.unlink(probe)
    finally:
        os.close(from_fd)
