"""The watches of a session, which a client must track to remove or restore them.

Pure. Paths include the chroot. client.py calls a session's `Watches` from two threads. It reports
events without a lookup in `Watches`, because a server only sends events for which a watch is set.

Source: ZooKeeper 3.8 ZKWatchManager, ClientCnxn.SendThread.primeConnection.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

DATA: Final = "data"
ABSENT: Final = "absent"
"""A watch that exists() sets on a missing znode; it fires when the znode is created."""
CHILDREN: Final = "children"
PERSISTENT: Final = "persistent"
RECURSIVE: Final = "recursive"
_KINDS: Final = (DATA, ABSENT, CHILDREN, PERSISTENT, RECURSIVE)
# As in ZKWatchManager.materialize. Events do not end persistent watches, so these are not listed.
_FIRES: Final = {
    "NodeCreated": (DATA, ABSENT),
    "NodeDataChanged": (DATA, ABSENT),
    "NodeChildrenChanged": (CHILDREN,),
    "NodeDeleted": (DATA, ABSENT, CHILDREN),
}
_KINDS_BY_OPTION: Final = {"c": (CHILDREN,), "d": (DATA, ABSENT), "a": _KINDS}
_REMOVAL_EVENTS: Final = {
    CHILDREN: "ChildWatchRemoved",
    DATA: "DataWatchRemoved",
    ABSENT: "DataWatchRemoved",
    PERSISTENT: "PersistentWatchRemoved",
    RECURSIVE: "PersistentWatchRemoved",
}
_BATCH_BYTES: Final = 128 * 1024
"""Approximate size of the paths in one request, as in ZooKeeper; servers accept one megabyte."""


class Watches:
    """The watches of a session, by kind and path."""

    def __init__(self) -> None:
        # A dict, which keeps the order in which watches were set.
        self._watched: dict[tuple[str, str], None] = {}

    def add(self, kind: str, path: str) -> None:
        """Record a watch."""
        self._watched[kind, path] = None

    def fired(self, event: str, path: str) -> None:
        """Remove the one-time watches that fired with `event`."""
        for kind in _FIRES.get(event, ()):
            # The watch may be missing, because a client can remove it while its event is under way.
            self._watched.pop((kind, path), None)

    def removal_events(self, path: str, option: str) -> list[str]:
        """Return the event types to report when watches are removed; empty if no watch is set.

        `option` is an option of `removewatches`: c, d or a.
        """
        kinds = [kind for kind in _KINDS_BY_OPTION[option] if (kind, path) in self._watched]
        return list(dict.fromkeys(_REMOVAL_EVENTS[kind] for kind in kinds))

    def remove(self, path: str, option: str) -> None:
        """Remove the watches that `option` selects."""
        for kind in _KINDS_BY_OPTION[option]:
            self._watched.pop((kind, path), None)

    def clear(self) -> None:
        """Remove all watches, because the session has ended."""
        self._watched.clear()

    def batches(self) -> Iterator[list[list[str]]]:
        """Yield all watches as arguments for `requests.set_watches`, split by size."""
        batch = _Batch()
        # A copy, because another thread can add watches.
        for kind, path in list(self._watched):
            if batch.size_bytes >= _BATCH_BYTES:
                yield batch.paths()
                batch = _Batch()
            batch.add(kind, path)
        if batch.size_bytes:
            yield batch.paths()


class _Batch:
    """The paths of one request, by kind."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._paths_by_kind: dict[str, list[str]] = {kind: [] for kind in _KINDS}

    def add(self, kind: str, path: str) -> None:
        self._paths_by_kind[kind].append(path)
        # Bytes count for the server's limit, and a character may need several.
        self.size_bytes += len(path.encode())

    def paths(self) -> list[list[str]]:
        return list(self._paths_by_kind.values())
