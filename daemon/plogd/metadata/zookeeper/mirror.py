"""A copy of znodes in memory, with the keys that they hold.

The store reads only this copy. `put` and `remove` change it, after a write or a read; they return
the keys that have changed. The version of a partition's key is the version of its znode, which is
its partition epoch. All other keys get a version from a counter of the mirror, so a znode that was
deleted and created again does not look unchanged, and a user's quotas do not change with the user's
credentials, which are in the same znode.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from plog.errors import KafkaStorageError
from plog.zookeeper.operations import ZnodeStat
from plogd.metadata.store import ABSENT, Key
from plogd.metadata.zookeeper.znode_codec import decode_znode
from plogd.ports import Report, silence


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredZnode:
    """A znode, as it was when it was last read or written."""

    data: bytes
    version: int
    keys: tuple[Key, ...]


class ZnodeMirror:
    """The znodes that the store knows, by path, and the values of their keys."""

    def __init__(self, report: Report = silence) -> None:
        self._report = report
        self._znodes: dict[str, MirroredZnode] = {}
        # Grouped, because `load` examines a whole group.
        self._entries: dict[str | int, dict[Key, tuple[Any, int]]] = {}
        self._paths: dict[Key, str] = {}
        self._last_version = 0
        self.damaged: dict[str, str] = {}
        """The znodes that cannot be decoded, with the reason; they hold no key."""

    # -- reading ------------------------------------------------------------------------------

    def get(self, key: Key) -> tuple[Any, int]:
        """Return the value of a key and its version; (None, ABSENT) if it is missing."""
        return self._entries.get(key[0], {}).get(key, (None, ABSENT))

    def load(self, prefix: Key) -> dict[Key, tuple[Any, int]]:
        """Return all keys that begin with `prefix`."""
        length = len(prefix)
        entries = self._entries.get(prefix[0], {})
        return {key: entry for key, entry in entries.items() if key[:length] == prefix}

    def znode(self, path: str) -> MirroredZnode | None:
        """Return the znode at `path`, or None if it does not exist as far as is known."""
        return self._znodes.get(path)

    def paths_below(self, path: str) -> list[str]:
        """Return the known paths below `path`. Cost: O(number of znodes)."""
        return [one for one in self._znodes if one.startswith(path + "/")]

    def path_holding(self, key: Key) -> str | None:
        """Return the znode that holds an existing key, or None."""
        return self._paths.get(key)

    def check(self, path: str) -> None:
        """Raise KafkaStorageError if the znode at `path` is damaged."""
        problem = self.problem(path)
        if problem is not None:
            raise KafkaStorageError(problem)

    def problem(self, path: str) -> str | None:
        """Return the error for a znode that cannot be decoded, or None."""
        reason = self.damaged.get(path)
        return None if reason is None else _damage_text(path, reason)

    # -- changing -----------------------------------------------------------------------------

    def put(self, path: str, data: bytes, stat: ZnodeStat) -> list[Key]:
        """Set a znode; return the keys that have changed, appeared or disappeared."""
        old = self._znodes.get(path)
        is_same = old is not None and old.data == data and old.version == stat.version
        # Most reads confirm what is known. The epoch of a broker is not part of the data.
        if is_same and not path.startswith("/brokers/ids/"):
            return []
        try:
            values = decode_znode(path, data, stat)
        except ValueError as error:
            values = {}
            self._set_damaged(path, str(error))
        else:
            self.damaged.pop(path, None)
        old_keys = old.keys if old is not None else ()
        changed = [key for key in old_keys if key not in values]
        for key in changed:
            self._drop(key)
        for key, value in values.items():
            if self._set(path, key, value, stat):
                changed.append(key)
        self._znodes[path] = MirroredZnode(data=data, version=stat.version, keys=tuple(values))
        return changed

    def remove(self, path: str) -> list[Key]:
        """Note that a znode does not exist; return the keys that have disappeared."""
        self.damaged.pop(path, None)
        old = self._znodes.pop(path, None)
        if old is None:
            return []
        for key in old.keys:
            self._drop(key)
        return list(old.keys)

    def retain(self, tree: str, paths: Iterable[str]) -> list[Key]:
        """Remove the znodes below `tree` that are not in `paths`; return their keys."""
        kept = set(paths)
        gone = [path for path in self.paths_below(tree) if path not in kept]
        return [key for path in gone for key in self.remove(path)]

    def _set(self, path: str, key: Key, value: Any, stat: ZnodeStat) -> bool:
        group = self._entries.setdefault(key[0], {})
        old_value, old_version = group.get(key, (None, ABSENT))
        if key[0] == "partition":
            version = stat.version
        elif key[0] == "broker":
            version = stat.czxid
        elif old_version != ABSENT and old_value == value:
            version = old_version
        else:
            self._last_version += 1
            version = self._last_version
        if (old_value, old_version) == (value, version):
            return False
        group[key] = (value, version)
        self._paths[key] = path
        return True

    def _drop(self, key: Key) -> None:
        self._entries[key[0]].pop(key, None)
        self._paths.pop(key, None)

    def _set_damaged(self, path: str, reason: str) -> None:
        if self.damaged.get(path) != reason:
            self.damaged[path] = reason
            self._report("{problem}", problem=_damage_text(path, reason), level="error")


def _damage_text(path: str, reason: str) -> str:
    return f"cannot decode the znode {path}: {reason}; correct it with plog zookeeper-shell"
