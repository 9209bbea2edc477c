"""The Files port in memory, with a disk that fails like real disks.

The fault model:

Power loss (`crash`)
    Each file keeps the content of its last sync; of later bytes it keeps none, all, a part cut at
    any byte, a part followed by zeros, or a random mix of 512- or 4096-byte sectors that are new,
    old, zero or garbage. A truncation that was not synced may be undone.
    Names (created, renamed, removed) since their directory's last `sync_dir` may each be kept or
    lost, in any order; a rename or an exchange is atomic. A file whose name is lost is lost.
    `sync_fs` makes everything on its device durable, including names.
Death of the process (`kill`)
    Everything written is still there and no more durable than before; the last append may be cut.
Crash at an operation (`crash_at`)
    The n-th operation that changes anything (create, append, truncate, rename, exchange, unlink,
    mkdir, rmdir, sync, sync_dir, sync_fs) raises `SimCrash`, as do all later ones. It may or may
    not have had its effect, but a sync has not certainly made anything durable.
Another disk (`empty`, `snapshot`, `restored`)
    A directory loses everything, or all files become those of an earlier moment.
Errors (`fail_at`, `fail_when`, `capacity_bytes`)
    An operation raises OSError. A failed append leaves the first half of its bytes. After a failed
    sync the kernel has forgotten the dirty pages: the open file that received the error fails from
    then on; for any other file object, later syncs succeed and make nothing durable (until the file
    is truncated), and `drop_cache` reveals zeros.
    With `capacity_bytes`, appends beyond it raise ENOSPC until something is removed or truncated.

Not modeled: damage to synced data (tests flip bits themselves), hard links, reading old data in
place of new data without a power loss.

A test that passes on real files also passes here: tests/unit/test_os_files.py tests both
implementations.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from plogd.descriptor_budget import DescriptorBudget
from plogd.file_pool import FilePool
from plogd.ports import Clock, DiskSpace, File
from tests.helpers.sim.sim_disk import Chance, Directory, Disk, Edit, Inode, Node
from tests.helpers.sim.sim_file import SimFile


class SimCrash(BaseException):
    """The machine stopped here. Not an Exception: no code under test may catch it and continue."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call that changes something, numbered from 1, or a read with the number before it."""

    number: int
    name: str
    path: str
    is_read: bool = False


def _no_fault(operation: Operation) -> OSError | None:
    return None


class _OperationScope:
    """Applies an operation between its error, which prevents it, and its crash, which does not."""

    def __init__(self, files: SimFiles, operation: Operation) -> None:
        self._files = files
        self._operation = operation

    def __enter__(self) -> Operation:
        return self._operation

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._files.maybe_crash(self._operation)


class SimFiles:
    """A simulated file system. `directories` exist, durably, from the start.

    `device_by_path` places the trees below some paths on separate devices; everything else is on
    device 1.
    """

    def __init__(
        self,
        directories: Sequence[str] = (),
        *,
        clock: Clock | None = None,
        device_by_path: Mapping[str, int] | None = None,
    ) -> None:
        self.clock = clock
        self._device_by_path = dict(device_by_path or {})
        self._disk = Disk(Directory(1))
        self._locks: set[str] = set()
        self._last_append: tuple[Inode, int] | None = None
        self._is_dead = False
        self._crash_at: int | None = None
        self._fault: Callable[[Operation], OSError | None] = _no_fault
        self.operations = 0
        """How many operations have been counted."""
        self.on_operation: Callable[[Operation], None] = lambda operation: None
        """Called before each operation: to list crash points, or to trace."""
        self.append_ms: Callable[[str], float] = lambda path: 0.0
        """How long an append to a path takes; the clock advances meanwhile."""
        self.capacity_bytes: int | None = None
        self.everything_cached = True
        self.sync_fs_supported = True
        self.reserve_supported = True
        self.descriptors = DescriptorBudget()
        self._pool = FilePool(self.open_append, self.open_existing, self.descriptors, nullcontext())
        for path in (*directories, *self._device_by_path):
            self.mkdir(path)
        for device in {1, *self._device_by_path.values()}:
            self._disk.sync_device(device)
        self.operations = 0

    # -- faults -------------------------------------------------------------------------------

    def crash(self, chance: Chance) -> SimFiles:
        """Lose power: return the file system as the next start finds it. This one is unusable."""
        return self._successor(self._disk.after_power_loss(chance))

    def kill(self, chance: Chance | None = None) -> SimFiles:
        """Kill the process: keep all writes; with `chance` the last append may be cut."""
        if chance is not None and self._last_append is not None:
            inode, start = self._last_append
            if len(inode.content) > start:
                inode.truncate(start + chance.randrange(len(inode.content) - start + 1))
        return self._successor(self._disk)

    def _successor(self, disk: Disk) -> SimFiles:
        self._is_dead = True
        successor = SimFiles(clock=self.clock)
        successor._device_by_path = self._device_by_path
        successor._disk = disk
        successor.capacity_bytes = self.capacity_bytes
        successor.sync_fs_supported = self.sync_fs_supported
        successor.reserve_supported = self.reserve_supported
        return successor

    def empty(self, path: str) -> None:
        """Durably remove everything in a directory, as if its disk was replaced."""
        self._disk.empty(self._directory(path))

    def snapshot(self) -> Disk:
        """Return a copy of all files, for `restored`."""
        return self._disk.copied()

    def restored(self, snapshot: Disk) -> SimFiles:
        """Return the file system with the files of a snapshot. This one is unusable."""
        return self._successor(snapshot)

    def crash_at(self, number: int | None) -> None:
        """Raise SimCrash at the operation with this number, counted from 1; None cancels it."""
        self._crash_at = number

    def fail_at(self, number: int, error_number: int) -> None:
        """Raise OSError(`error_number`) at the operation with this number, counted from 1."""
        self.fail_when(
            lambda operation: operation.number == number and not operation.is_read, error_number
        )

    def fail_when(self, applies: Callable[[Operation], bool], error_number: int) -> None:
        """Raise OSError at every operation or read that `applies`; replaces earlier errors."""

        def fault(operation: Operation) -> OSError | None:
            if applies(operation):
                return OSError(error_number, os.strerror(error_number), operation.path)
            return None

        self._fault = fault

    def fail_no_more(self) -> None:
        """Repair the disk; lost data stays lost."""
        self._fault = _no_fault

    # -- used by SimFile -----------------------------------------------------------------------

    def operation(self, name: str, path: str) -> _OperationScope:
        """Count an operation; raises the OSError that prevents it."""
        operation, error = self._begin(name, path)
        if error is not None:
            raise error
        return _OperationScope(self, operation)

    def _begin(self, name: str, path: str) -> tuple[Operation, OSError | None]:
        self._check_alive()
        self.operations += 1
        operation = Operation(self.operations, name, path)
        self.on_operation(operation)
        return operation, self._fault(operation)

    def maybe_crash(self, operation: Operation) -> None:
        """Raise SimCrash if this is the operation to crash at."""
        if operation.number == self._crash_at:
            self._is_dead = True
            raise SimCrash(operation)

    def reading(self, name: str, path: str) -> None:
        """Raise the OSError planned for a read."""
        self._check_alive()
        error = self._fault(Operation(self.operations, name, path, is_read=True))
        if error is not None:
            raise error

    def append(self, path: str, inode: Inode, data: bytes) -> None:
        """Append to an open file; only half of the bytes if that fails."""
        took_ms = self.append_ms(path)
        if took_ms and self.clock is not None:
            self.clock.advance_to(self.clock.monotonic_ms() + took_ms)
        operation, error = self._begin("append", path)
        growth = len(inode.content) + len(data) - inode.used_bytes
        if error is None and growth > 0 and self._is_full(growth):
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self._last_append = inode, len(inode.content)
        inode.content += data if error is None else data[: len(data) // 2]
        inode.modified_ms = self.now_ms()
        if error is not None:
            raise error
        self.maybe_crash(operation)

    def reserve(self, inode: Inode, nbytes: int) -> bool:
        """Reserve space after a file's end, if available; not an operation that may fail."""
        end = len(inode.content) + nbytes
        if not self.reserve_supported:
            return False
        if end > inode.used_bytes and self._is_full(end - inode.used_bytes):
            return False
        inode.reserved_end = max(inode.reserved_end, end)
        return True

    def sync(self, path: str, inode: Inode) -> None:
        """Make an open file durable, or fail permanently."""
        operation, error = self._begin("sync", path)
        self.maybe_crash(operation)
        if error is not None:
            inode.fail_sync()
            raise error
        inode.sync()

    # -- the port -----------------------------------------------------------------------------

    def open_append(self, path: str) -> File:
        self._check_alive()
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None:
            with self.operation("create", path):
                node = Inode(self.device(posixpath.dirname(_absolute(path))))
                node.modified_ms = self.now_ms()
                self._disk.change(self.now_ms(), Edit(directory, name, node))
        return SimFile(self, path, _as_file(node, path))

    def open_existing(self, path: str) -> File:
        self.reading("open", path)
        return SimFile(self, path, _as_file(self._find(path), path))

    def open_on_demand(self, path: str) -> File:
        return self._pool.open(path)

    def open_read(self, path: str) -> File:
        self.reading("open", path)
        return SimFile(self, path, _as_file(self._find(path), path))

    def read_file(self, path: str) -> bytes:
        self.reading("read", path)
        return bytes(_as_file(self._find(path), path).content)

    def rename(self, source: str, target: str) -> None:
        self._check_alive()
        node = self._find(source)
        (old_parent, old_name), (parent, name) = self._parent(source), self._parent(target)
        if old_parent.device != parent.device:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)
        there = parent.entries.get(name)
        if isinstance(there, Directory) and there.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), source, None, target)
        with self.operation("rename", source):
            self._disk.change(
                self.now_ms(), Edit(old_parent, old_name, None), Edit(parent, name, node)
            )

    def exchange(self, first: str, second: str) -> None:
        self._check_alive()
        nodes = (self._find(first), self._find(second))
        (one_parent, one_name), (other_parent, other_name) = (
            self._parent(first),
            self._parent(second),
        )
        if one_parent.device != other_parent.device:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), first, None, second)
        with self.operation("exchange", first):
            self._disk.change(
                self.now_ms(),
                Edit(one_parent, one_name, nodes[1]),
                Edit(other_parent, other_name, nodes[0]),
            )

    def unlink(self, path: str) -> None:
        self._check_alive()
        directory, name = self._parent(path)
        _as_file(self._find(path), path)
        with self.operation("unlink", path):
            self._disk.change(self.now_ms(), Edit(directory, name, None))

    def mkdir(self, path: str) -> None:
        self._check_alive()
        if self.exists(path):
            if not self.is_dir(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            return
        self.mkdir(posixpath.dirname(_absolute(path)))
        directory, name = self._parent(path)
        with self.operation("mkdir", path):
            self._disk.change(self.now_ms(), Edit(directory, name, Directory(self.device(path))))

    def rmdir(self, path: str) -> None:
        self._check_alive()
        directory, name = self._parent(path)
        if self._directory(path).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        with self.operation("rmdir", path):
            self._disk.change(self.now_ms(), Edit(directory, name, None))

    def listdir(self, path: str) -> list[str]:
        self.reading("listdir", path)
        return sorted(self._directory(path).entries)

    def exists(self, path: str) -> bool:
        self._check_alive()
        return self._lookup(path) is not None

    def is_dir(self, path: str) -> bool:
        self._check_alive()
        return isinstance(self._lookup(path), Directory)

    def modified_ms(self, path: str) -> int:
        self._check_alive()
        return self._find(path).modified_ms

    def sync_dir(self, path: str) -> None:
        operation, error = self._begin("sync_dir", path)
        self.maybe_crash(operation)
        if error is not None:
            raise error
        self._disk.sync_directory(self._directory(path))

    def sync_fs(self, path: str) -> None:
        operation, error = self._begin("sync_fs", path)
        self.maybe_crash(operation)
        device = self.device(path)
        if error is not None:
            for node in self._disk.nodes():
                if isinstance(node, Inode) and node.device == device:
                    node.fail_sync()
            raise error
        self._disk.sync_device(device)

    def sync_fs_apart(self, path: str) -> None:
        self.sync_fs(path)

    def supports_sync_fs(self, path: str) -> bool:
        return self.sync_fs_supported

    def device(self, path: str) -> int:
        path = _absolute(path)
        places = [
            place
            for place in self._device_by_path
            if path == _absolute(place) or path.startswith(_absolute(place) + "/")
        ]
        return self._device_by_path[max(places, key=len)] if places else 1

    def space(self, path: str) -> DiskSpace:
        self.reading("space", path)
        total = 1 << 40 if self.capacity_bytes is None else self.capacity_bytes
        return DiskSpace(total, max(0, total - self.used_bytes))

    def lock(self, path: str) -> Callable[[], None]:
        self._check_alive()
        key = _absolute(path)
        if key in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self.open_append(path).close()
        self._locks.add(key)
        return lambda: self._locks.discard(key)

    # -- state --------------------------------------------------------------------------------

    @property
    def is_dead(self) -> bool:
        """Whether the machine or its process has stopped, so that these files cannot be used."""
        return self._is_dead

    @property
    def used_bytes(self) -> int:
        """Bytes of all files that have a name, and the space reserved for them."""
        return sum(node.used_bytes for node in self._disk.nodes() if isinstance(node, Inode))

    def reserved_bytes(self, path: str) -> int:
        """Return the number of bytes that are reserved after the end of a file."""
        inode = _as_file(self._find(path), path)
        return inode.used_bytes - len(inode.content)

    def _is_full(self, more_bytes: int) -> bool:
        return self.capacity_bytes is not None and (
            self.used_bytes + more_bytes > self.capacity_bytes
        )

    def durable_bytes(self, path: str) -> int:
        """Return how many bytes at the start of a file survive a power loss."""
        node: Node | None = self._disk.root
        for name in _absolute(path).split("/")[1:]:
            # If the name was removed since the last sync, the file may still survive.
            node = node.durable.get(name) if isinstance(node, Directory) else None
        if node is None or node is not self._lookup(path):
            return 0
        return _as_file(node, path).durable_bytes

    def overwrite(self, path: str, content: bytes) -> None:
        """Damage a file silently and durably, without an operation or a fault."""
        _as_file(self._find(path), path).replace(content)

    def now_ms(self) -> int:
        """Return the wall-clock time; 0 without a clock."""
        return 0 if self.clock is None else self.clock.now_ms()

    def _check_alive(self) -> None:
        if self._is_dead:
            raise SimCrash("the machine has stopped")

    def _lookup(self, path: str) -> Node | None:
        node: Node | None = self._disk.root
        for name in _absolute(path).split("/")[1:]:
            if name:
                node = node.entries.get(name) if isinstance(node, Directory) else None
        return node

    def _find(self, path: str) -> Node:
        node = self._lookup(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, name = posixpath.split(_absolute(path))
        return self._directory(parent), name


def _absolute(path: str) -> str:
    return posixpath.normpath(posixpath.join("/", path))


def _as_file(node: Node, path: str) -> Inode:
    if not isinstance(node, Inode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return node
