"""The disk below `SimFiles`: current files and names, and the state that a power loss may leave.

Only sim_files.py uses this module; its module docstring describes the fault model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias


class Chance(Protocol):
    """The methods that a power loss needs, of `random.Random` or of the Random port."""

    def randrange(self, stop: int, /) -> int: ...


class Inode:
    """A file's bytes: the content that processes see, and the part that is durable."""

    __slots__ = (
        "_disk_tail",
        "_doomed",
        "_stable",
        "content",
        "device",
        "is_warm",
        "modified_ms",
        "reserved_end",
    )

    def __init__(self, device: int, content: bytes = b"") -> None:
        self.device = device
        self.content = bytearray(content)
        self.modified_ms = 0
        self.reserved_end = 0
        """Space on the disk is reserved up to this size, even when the disk is full."""
        self.is_warm = False
        """Whether it was read, or written from its start, since the page cache was dropped; matters
        if not all is cached."""
        self._stable = len(content)
        """The length of the prefix that is equal on disk."""
        self._disk_tail = b""
        """The durable bytes after that prefix, which were truncated since the last sync."""
        self._doomed = False
        """A sync failed: the kernel has dropped and forgotten the data that it could not write."""

    @property
    def used_bytes(self) -> int:
        return max(len(self.content), self.reserved_end)

    def truncate(self, size_bytes: int) -> None:
        self.reserved_end = 0
        if size_bytes <= self._stable:
            self._disk_tail = bytes(self.content[size_bytes : self._stable]) + self._disk_tail
            self._stable = size_bytes
            self._doomed = False
        del self.content[size_bytes:]
        self.content.extend(bytes(size_bytes - len(self.content)))

    def replace(self, content: bytes) -> None:
        """Replace the content, durably."""
        self.content = bytearray(content)
        self._stable, self._disk_tail, self._doomed = len(content), b"", False

    @property
    def durable_bytes(self) -> int:
        """The length of the prefix that is on disk."""
        return self._stable

    @property
    def is_durable(self) -> bool:
        return self._stable == len(self.content) and not self._disk_tail

    def sync(self) -> None:
        """Make all bytes durable; after a failed sync this silently does nothing, as on Linux."""
        if not self._doomed:
            self._stable, self._disk_tail = len(self.content), b""

    def fail_sync(self) -> None:
        # Only the data is forgotten. The journal still contains a truncation, and the next sync of
        # the file writes it, together with data that was written after the failure.
        self._doomed = self._stable < len(self.content)

    def drop_cache(self, position: int = 0) -> None:
        """Drop clean pages, which are then read from disk; dirty ones stay."""
        if self._doomed:
            assert position <= self._stable, "bytes that are not on disk would stay in the cache"
            self.content[self._stable :] = bytes(len(self.content) - self._stable)
            self._doomed = False  # Later writes are dirty again, and are synced.

    def after_power_loss(self, chance: Chance) -> bytes:
        """Return content that the disk may have. The stable prefix is always as written."""
        old = bytes(self.content[: self._stable]) + self._disk_tail
        new = bytes(self.content)
        if self.is_durable or (self._doomed and chance.randrange(2)):
            return old
        kind = chance.randrange(6)
        if kind == 0:
            return old
        if kind == 1:
            return new
        size = self._stable + chance.randrange(max(1, len(new) - self._stable + 1))
        if kind == 2:  # Torn at any byte.
            return new[:size]
        if kind == 3:  # The size was written, the data was not.
            return new[:size] + bytes(len(new) - size)
        return self._mix_sectors(old, new, 512 if kind == 4 else 4096, chance)

    def _mix_sectors(self, old: bytes, new: bytes, sector_bytes: int, chance: Chance) -> bytes:
        """Return the content with each unsynced sector written, skipped, or garbage."""
        size = max(len(old), len(new)) if chance.randrange(2) else len(new)
        mixed = bytearray(new[: self._stable])
        while len(mixed) < size:
            start = len(mixed)
            end = min(size, (start // sector_bytes + 1) * sector_bytes)
            what = chance.randrange(8)
            if what == 0:
                sector = bytes([chance.randrange(256)]) * (end - start)
            elif what == 1:
                sector = b""  # Zeros.
            else:
                sector = (old if what < 4 else new)[start:end]
            mixed += sector.ljust(end - start, b"\0")
        return bytes(mixed)


class Directory:
    """The current names of a directory, and its durable names."""

    __slots__ = ("device", "durable", "entries", "modified_ms")

    def __init__(self, device: int) -> None:
        self.device = device
        self.modified_ms = 0
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}

    def sync_all(self) -> None:
        self.durable = dict(self.entries)


Node: TypeAlias = Inode | Directory


@dataclass(frozen=True, slots=True)
class Edit:
    """One name in one directory that now refers to `node`, or to nothing."""

    directory: Directory
    name: str
    node: Node | None


@dataclass(frozen=True, slots=True)
class Change:
    """Edits that reach the disk atomically: two for a rename, otherwise one."""

    edits: tuple[Edit, ...]

    def touches(self, directory: Directory) -> bool:
        return any(edit.directory is directory for edit in self.edits)

    def apply(self) -> None:
        for edit in self.edits:
            _put(edit.directory.entries, edit.name, edit.node)

    def reach_disk(self) -> None:
        for edit in self.edits:
            _put(edit.directory.durable, edit.name, edit.node)


class Disk:
    """A tree of directories and files, and the changes of names that are not durable yet."""

    def __init__(self, root: Directory) -> None:
        self.root = root
        self.changes: list[Change] = []

    def change(self, now_ms: int, *edits: Edit) -> None:
        for edit in edits:
            edit.directory.modified_ms = now_ms
        change = Change(edits)
        change.apply()
        self.changes.append(change)

    def sync_directory(self, directory: Directory) -> None:
        for change in self.changes:
            if change.touches(directory):
                change.reach_disk()
        self.changes = [change for change in self.changes if not change.touches(directory)]

    def sync_device(self, device: int) -> None:
        directories: set[int] = set()
        for node in self.nodes():
            if node.device == device:
                if isinstance(node, Inode):
                    node.sync()
                else:
                    directories.add(id(node))
        # In one pass: tests create thousands of directories.
        others: list[Change] = []
        for change in self.changes:
            if any(id(edit.directory) in directories for edit in change.edits):
                change.reach_disk()
            else:
                others.append(change)
        self.changes = others

    def nodes(self) -> Iterator[Node]:
        """Return every file and directory that has a name, the root first."""
        todo: list[Node] = [self.root]
        while todo:
            node = todo.pop()
            yield node
            if isinstance(node, Directory):
                todo.extend(node.entries.values())

    def empty(self, directory: Directory) -> None:
        """Durably remove everything in a directory."""
        self.changes = [change for change in self.changes if not change.touches(directory)]
        directory.entries.clear()
        directory.sync_all()

    def copied(self) -> Disk:
        """Return a disk with the same names and contents, all of them durable."""
        return Disk(_copied(self.root, {}))

    def after_power_loss(self, chance: Chance) -> Disk:
        """Return the disk as the next start may find it; do not use this one afterwards."""
        in_order = chance.randrange(2)
        kept = chance.randrange(len(self.changes) + 1)
        for number, change in enumerate(self.changes):
            if number < kept if in_order else chance.randrange(2):
                change.reach_disk()
        copies: dict[int, Node] = {}
        return Disk(_copy_directory(self.root, chance, copies))


def _copy_directory(directory: Directory, chance: Chance, copies: dict[int, Node]) -> Directory:
    copy = Directory(directory.device)
    copy.modified_ms = directory.modified_ms
    copies[id(directory)] = copy
    for name, node in sorted(directory.durable.items()):
        found = copies.get(id(node))
        if found is None:
            if isinstance(node, Directory):
                found = _copy_directory(node, chance, copies)
            else:
                found = Inode(node.device, node.after_power_loss(chance))
                found.modified_ms = node.modified_ms
                copies[id(node)] = found
        copy.entries[name] = found
    copy.sync_all()
    return copy


def _copied(directory: Directory, copies: dict[int, Node]) -> Directory:
    copy = Directory(directory.device)
    copy.modified_ms = directory.modified_ms
    for name, node in sorted(directory.entries.items()):
        found = copies.get(id(node))
        if found is None:
            if isinstance(node, Directory):
                found = _copied(node, copies)
            else:
                found = Inode(node.device, bytes(node.content))
                found.modified_ms = node.modified_ms
            copies[id(node)] = found
        copy.entries[name] = found
    copy.sync_all()
    return copy


def _put(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node
