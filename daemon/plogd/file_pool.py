"""A pool of log files that are opened on demand and closed when they have not been used recently.

A log has three files per segment and may have thousands of segments, so it cannot keep all of them
open. A `PooledFile` opens its file on use. Of the files without a holder, only the most recently
used stay open. A read retains the open file (`File.retain`), so it can finish after the pool has
released its own hold. A segment that is being written keeps its descriptor (`retain_for_writing`);
the `DescriptorBudget` limits the number of such segments.

`plogd.os_files` and the simulator share this module; they pass the two functions that open a file,
and a lock. Any thread may use a file.

Source: PostgreSQL's virtual file descriptors (storage/file/fd.c). Invariant: `FilePool.open`
creates a file once; an unlinked file is never recreated.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from plogd.descriptor_budget import DescriptorBudget
from plogd.files import Buffer, File

T = TypeVar("T")


class FilePool:
    """The open files of all logs of a broker.

    Args:
        create: opens a path for append and read; creates the file if it does not exist.
        reopen: opens a path as `create` does, but raises FileNotFoundError if it does not exist.
        budget: limits the number of open files.
        lock: protects this pool and the counters of the budget.
    """

    def __init__(
        self,
        create: Callable[[str], File],
        reopen: Callable[[str], File],
        budget: DescriptorBudget,
        lock: AbstractContextManager[object],
    ) -> None:
        self._create = create
        self._reopen = reopen
        self._budget = budget
        self._lock = lock
        self._idle: dict[PooledFile, None] = {}
        """Open files that are not being written, in the order they were opened."""
        budget.open_on_demand = self._count_idle

    def open(self, path: str) -> PooledFile:
        """Open or create the file at `path`."""
        opened = self._create(path)
        file = PooledFile(self, path)
        self._keep(file, opened).close()
        return file

    def retain(self, file: PooledFile) -> File:
        """Return the open file of `file` with one more holder; open the file if it is closed."""
        with self._lock:
            if file.is_closed:
                raise OSError(errno.EBADF, "the file is closed", file.path)
            if file.opened is not None:
                # Within the lock; otherwise, the pool could close the file before it has this
                # holder.
                return file.opened.retain()
        # Opened without the lock, because opening may wait for the disk.
        return self._keep(file, self._reopen(file.path))

    def retain_for_writing(self, file: PooledFile, *, is_reserved: bool) -> File:
        """Retain the file and keep it open until `end_writing`. Raises OSError."""
        with self._lock:
            assert not file.is_written
            # Counted before the file is opened, so that two threads cannot share the last
            # descriptor.
            self._budget.take_for_writing(file.path, is_reserved=is_reserved)
            file.is_written = True
        try:
            opened = self.retain(file)
        except BaseException:
            # The caller cannot write, so the file must not remain counted.
            self.end_writing(file)
            raise
        with self._lock:
            # If the file was already open, it was idle until now.
            self._idle.pop(file, None)
            surplus = self._take_surplus()  # The more files are written, the fewer may be idle.
        _close(surplus)
        return opened

    def end_writing(self, file: PooledFile) -> None:
        """Allow the pool to close the descriptor of a file that is no longer being written."""
        with self._lock:
            assert file.is_written
            file.is_written = False
            self._budget.give_back()
            if file.opened is not None:
                self._idle[file] = None
            surplus = self._take_surplus()
        _close(surplus)

    def close(self, file: PooledFile) -> None:
        """Release the owner's hold on `file`; other holders keep the open file."""
        with self._lock:
            assert not file.is_closed, f"{file.path} is closed"
            file.is_closed = True
            opened, file.opened = file.opened, None
            self._idle.pop(file, None)
            if file.is_written:
                file.is_written = False
                self._budget.give_back()
        if opened is not None:
            # Without the lock, because closing may wait for the disk.
            opened.close()

    def _count_idle(self) -> int:
        return len(self._idle)

    def _keep(self, file: PooledFile, opened: File) -> File:
        """Set `file.opened` unless another thread has set it; return the open file, retained."""
        with self._lock:
            spare: list[File] = []
            # Another thread has closed the file in the meantime, so the pool does not keep it.
            if file.is_closed:
                held = opened.retain()
                spare = [opened]
            elif file.opened is not None:
                held = file.opened.retain()
                spare = [opened]
            else:
                file.opened = opened
                held = opened.retain()
                if not file.is_written:
                    self._idle[file] = None
                    spare = self._take_surplus()
        # After the lock is released, because closing may wait for the disk.
        _close(spare)
        return held

    def _take_surplus(self) -> list[File]:
        """Remove and return the files to close: oldest first, except recently used files."""
        surplus: list[File] = []
        # At least one, so that a file which was just opened is not closed before its first use.
        count = len(self._idle) - max(1, self._budget.max_idle)
        while count > len(surplus):
            file = next(iter(self._idle))
            del self._idle[file]
            if file.is_used:  # A second chance: move it to the end.
                file.is_used = False
                self._idle[file] = None
                continue
            assert file.opened is not None
            surplus.append(file.opened)
            file.opened = None
        return surplus


def _close(files: list[File]) -> None:
    for file in files:
        file.close()


class PooledFile:
    """A file that has a descriptor only while it is used; implements `plogd.files.File`.

    The owner updates `path`, from which the file is reopened, when it renames the file. `opened`,
    `is_written`, `is_closed` and `is_used` (since the pool's last check) belong to the pool.
    """

    __slots__ = ("_pool", "is_closed", "is_used", "is_written", "opened", "path")

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
        self.path = path
        self.opened: File | None = None
        self.is_written = False
        self.is_closed = False
        self.is_used = False

    def fileno(self) -> int:
        """Return -1: the descriptor belongs to the file that `retain` returns."""
        return -1

    @property
    def is_open(self) -> bool:
        """Whether the file has a descriptor now."""
        return self.opened is not None

    def retain(self) -> File:
        """Return the open file, with one more holder. Raises OSError."""
        # Without the lock: at worst, the pool closes a file that is used again.
        self.is_used = True
        opened = self.opened
        if opened is not None and opened.try_retain():  # The common case, without the pool's lock.
            return opened
        return self._pool.retain(self)

    def try_retain(self) -> bool:
        """Raise NotImplementedError: a holder needs the open file, which only `retain` returns."""
        raise NotImplementedError("use retain, which returns the open file")

    def retain_for_writing(self, *, is_reserved: bool = False) -> File:
        """Retain the file until `end_writing`. Raises OSError (EMFILE if no descriptor is left)."""
        return self._pool.retain_for_writing(self, is_reserved=is_reserved)

    def end_writing(self) -> None:
        """Let the pool close the descriptor. Close the file from `retain_for_writing` first."""
        self._pool.end_writing(self)

    def close(self) -> None:
        """Release the owner's hold; other holders keep the open file."""
        self._pool.close(self)

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end."""
        opened = self.opened
        if opened is not None:
            self.is_used = True
            # The file is not retained: an append to a closed file fails and writes nothing.
            try:
                opened.append(data)
                return
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise
        self._call(lambda file: file.append(data))

    def pread(self, length: int, position: int) -> bytes:
        """Read up to `length` bytes from `position`."""
        opened = self.opened
        if opened is not None:
            self.is_used = True
            # The file is not retained: a read from a closed file fails.
            try:
                return opened.pread(length, position)
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise
        return self._call(lambda file: file.pread(length, position))

    def pread_nowait(self, length: int, position: int) -> Buffer | None:
        """Read `length` bytes if they are cached and the file is open; otherwise, return None."""
        opened = self.opened
        if opened is None:
            return None
        self.is_used = True
        try:
            return opened.pread_nowait(length, position)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
        # Another thread has closed the file, and reopening it could wait for the disk.
        return None

    def size(self) -> int:
        """Return the size in bytes."""
        return self._call(lambda file: file.size())

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file to `size_bytes`."""
        self._call(lambda file: file.truncate(size_bytes))

    def reserve(self, nbytes: int) -> bool:
        """Allocate blocks after the end."""
        return self._call(lambda file: file.reserve(nbytes))

    def release(self) -> None:
        """Release the blocks after the end."""
        self._call(lambda file: file.release())

    def sync(self) -> None:
        """Make the file durable."""
        self._call(lambda file: file.sync())

    def cached(self, position: int, length: int) -> bool:
        """Return whether these bytes are in the page cache."""
        return self._call(lambda file: file.cached(position, length))

    def drop_cache(self, position: int = 0) -> None:
        """Drop cached clean pages from `position` on."""
        self._call(lambda file: file.drop_cache(position))

    def _call(self, function: Callable[[File], T]) -> T:
        file = self.retain()
        try:
            return function(file)
        finally:
            file.close()

    def __repr__(self) -> str:
        return f"PooledFile({self.path!r})"
