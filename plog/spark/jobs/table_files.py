"""`TableFiles`: the operations on files by which the job changes a table.

Each operation is atomic, or leaves nothing that readers see. A power failure does not undo an
operation that has returned, except `move` and `remove`: `sync` of their folders makes them durable.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Final, NoReturn

from plog.settings import ConfigError

# From fcntl.h and linux/fs.h. Python has no function for renameat2(2).
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
# A kernel without renameat2 returns ENOSYS, and a file system that cannot exchange EINVAL.
_UNSUPPORTED: Final = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


class TableFiles:
    """Files of a POSIX file system."""

    def names(self, folder: Path) -> list[str]:
        """Return the sorted names in a folder; none if it does not exist."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def size_bytes(self, path: Path) -> int:
        """Return the size of a file."""
        return path.stat().st_size

    def read(self, path: Path) -> str | None:
        """Return the text of a file, or None if it does not exist."""
        try:
            return path.read_text("utf-8")
        except FileNotFoundError:
            return None

    def write(self, path: Path, text: str) -> None:
        """Replace the text of a file atomically and durably."""
        partial = path.with_name(f".{path.name}.partial")
        # Without fsync, the new name could refer to an empty file after a power failure.
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        # A rename changes the folder, which has to be synced separately.
        self._sync(path.parent)

    def make_folder(self, path: Path) -> None:
        """Create a folder and those above it; an existing one is kept."""
        path.mkdir(parents=True, exist_ok=True)

    def link(self, path: Path, other: Path) -> None:
        """Give a file another name."""
        os.link(path, other)

    def move(self, path: Path, target: Path) -> None:
        """Rename a file or a folder; a folder must not exist under the new name."""
        os.rename(path, target)

    def exchange(self, one: Path, other: Path) -> bool:
        """Exchange two folders atomically; return False if the file system cannot do that."""
        # The name None stands for the process itself, which contains the C library. glibc has the
        # function since 2.28, and other systems than Linux lack it.
        libc = ctypes.CDLL(None, use_errno=True)
        rename = getattr(libc, "renameat2", None)
        if rename is None:
            return False
        paths = os.fsencode(one), os.fsencode(other)
        if rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
            return True
        code = ctypes.get_errno()
        if code in _UNSUPPORTED:
            return False
        raise OSError(code, os.strerror(code), os.fspath(one), None, os.fspath(other))

    def sync(self, path: Path) -> None:
        """Make a file, or the names in a folder, durable."""
        self._sync(path)

    def _sync(self, path: Path) -> None:
        # A folder can only be opened for reading, which is enough for fsync.
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is not an error."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        path.rmdir()

    def remove_tree(self, path: Path) -> None:
        """Remove a folder and everything in it; a missing one is not an error."""
        if not path.is_dir():
            return
        # shutil.rmtree would remove everything in one call, and tests interrupt the job before each
        # single removal.
        for entry in sorted(path.iterdir()):
            # Of a link, only the link itself is removed.
            if entry.is_dir() and not entry.is_symlink():
                self.remove_tree(entry)
            else:
                self.remove(entry)
        self.remove_folder(path)

    def is_folder(self, path: Path) -> bool:
        """Return whether a folder exists."""
        return path.is_dir()


def damaged(path: Path, reason: object) -> NoReturn:
    """Raise ConfigError for a file of the job that cannot be read."""
    raise ConfigError(
        [f"cannot read {path}: {reason}; restore the folder of the table from a backup"]
    )
