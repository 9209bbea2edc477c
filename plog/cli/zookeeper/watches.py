"""What a session watches: by it watches are revoked, and asked for again over a new connection.

Pure. Paths are the server's, with the chroot. client.py keeps one `Watches`, from two
threads. Whether an event is told does not depend on it: a server tells of nothing else.

Source: ZooKeeper 3.8 ZKWatchManager, ClientCnxn.SendThread.primeConnection.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

DATA: Final = "data"
ABSENT: Final = "absent"
"""Asked for the data of a znode that was not there: fires when it comes."""
CHILDREN: Final = "children"
PERSISTENT: Final = "persistent"
RECURSIVE: Final = "recursive"
_KINDS: Final = (DATA, ABSENT, CHILDREN, PERSISTENT, RECURSIVE)
_FIRES: Final = {
    "NodeCreated": (DATA, ABSENT),
    "NodeDataChanged": (DATA, ABSENT),
    "NodeChildrenChanged": (CHILDREN,),
    "NodeDeleted": (DATA, ABSENT, CHILDREN),
}
_REVOKES: Final = {"c": (CHILDREN,), "d": (DATA, ABSENT), "a": _KINDS}
_TOLD: Final = {
    CHILDREN: "ChildWatchRemoved",
    DATA: "DataWatchRemoved",
    ABSENT: "DataWatchRemoved",
    PERSISTENT: "PersistentWatchRemoved",
    RECURSIVE: "PersistentWatchRemoved",
}
_BATCH_BYTES: Final = 128 * 1024
"""Of paths in one request, far below what a server takes, which is a megabyte unless told."""


class Watches:
    """The watches of one session."""

    def __init__(self) -> None:
        self._watched: dict[tuple[str, str], None] = {}

    def add(self, kind: str, path: str) -> None:
        """There is a watch."""
        self._watched[kind, path] = None

    def fired(self, event: str, path: str) -> None:
        """An event has come: watches that fire once are gone."""
        for kind in _FIRES.get(event, ()):
            self._watched.pop((kind, path), None)

    def revocable(self, path: str, option: str) -> list[str]:
        """The types of event that are told if these watches are revoked; none: there are none.

        `option` is that of `removewatches`: c, d or a.
        """
        kinds = [kind for kind in _REVOKES[option] if (kind, path) in self._watched]
        return list(dict.fromkeys(_TOLD[kind] for kind in kinds))

    def revoke(self, path: str, option: str) -> None:
        """Forget them."""
        for kind in _REVOKES[option]:
            self._watched.pop((kind, path), None)

    def clear(self) -> None:
        """The session is over."""
        self._watched.clear()

    def batches(self) -> Iterator[list[list[str]]]:
        """All that is watched, for `zookeeper_requests.set_watches`, as often as it takes."""
        batch = _Batch()
        for kind, path in list(self._watched):
            if batch.size_bytes >= _BATCH_BYTES:
                yield batch.paths()
                batch = _Batch()
            batch.add(kind, path)
        if batch.size_bytes:
            yield batch.paths()


class _Batch:
    """Paths of one request, by kind."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._paths_by_kind: dict[str, list[str]] = {kind: [] for kind in _KINDS}

    def add(self, kind: str, path: str) -> None:
        self._paths_by_kind[kind].append(path)
        self.size_bytes += len(path.encode())

    def paths(self) -> list[list[str]]:
        return list(self._paths_by_kind.values())
