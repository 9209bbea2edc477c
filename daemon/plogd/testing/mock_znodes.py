"""The znodes of `MockZooKeeper`: transactions, versions, and the past states that stale reads see.

Knows nothing of sessions and connections, which are in mock_zookeeper.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from plog.zookeeper.operations import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    ZnodeStat,
    ZooKeeperError,
    name_of,
    parent_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Znode:
    """A znode at one time; `child_changes` numbers sequential children (ZooKeeper's cversion)."""

    data: bytes
    stat: ZnodeStat
    child_changes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What an applied transaction changed, for the watches.

    Attributes:
        touched: paths of znodes that were created, deleted or whose data changed.
        deleted: paths of znodes that were deleted.
        parents: paths of znodes whose children changed.
    """

    zxid: int
    touched: tuple[str, ...]
    deleted: tuple[str, ...]
    parents: tuple[str, ...]


class MockZnodes:
    """A tree of znodes that remembers its past."""

    def __init__(self) -> None:
        self.zxid = 0
        """The number of the latest transaction."""
        root = Znode(data=b"", stat=ZnodeStat(version=0, czxid=0, mzxid=0))
        self._history: dict[str, list[tuple[int, Znode | None]]] = {"/": [(0, root)]}
        self._children_ever: dict[str, set[str]] = {}
        self.log: deque[Transaction] = deque()
        """The transactions that some reader has not seen, oldest first; see `forget`."""

    # -- reading ------------------------------------------------------------------------------

    def find(self, path: str, zxid: int) -> Znode | None:
        """Return a znode as it was after the transaction `zxid`."""
        history = self._history.get(path, [])
        index = bisect_right(history, zxid, key=lambda entry: entry[0]) - 1
        return history[index][1] if index >= 0 else None

    def children(self, path: str, zxid: int) -> list[str]:
        """Return the names of a znode's children after the transaction `zxid`, sorted."""
        prefix = path.rstrip("/") + "/"
        names = self._children_ever.get(path, ())
        return sorted(name for name in names if self.find(prefix + name, zxid) is not None)

    def paths(self) -> list[str]:
        """Return the paths of all znodes now, in the order of their creation."""
        return [path for path in self._history if self.find(path, self.zxid) is not None]

    def forget(self, zxid: int) -> None:
        """Forget transactions that every reader has seen."""
        while self.log and self.log[0].zxid <= zxid:
            transaction = self.log.popleft()
            for path in {*transaction.touched, *transaction.parents}:
                history = self._history[path]
                # The newest state at or before `zxid` can still be read.
                del history[: bisect_right(history, zxid, key=lambda entry: entry[0]) - 1]

    # -- writing ------------------------------------------------------------------------------

    def apply(self, operations: Sequence[Operation], *, session: int, now_ms: int) -> list[Result]:
        """Apply all operations as one transaction, or raise MultiFailed."""
        stage = _Stage(self, session, now_ms)
        results: list[Result] = []
        for index, operation in enumerate(operations):
            try:
                results.append(stage.apply(operation))
            except ZooKeeperError as error:
                raise MultiFailed(index, error) from None
        self._commit(stage)
        return results

    def _commit(self, stage: _Stage) -> None:
        self.zxid += 1
        for path, znode in stage.changed.items():
            self._history.setdefault(path, []).append((self.zxid, znode))
            if path != "/":
                self._children_ever.setdefault(parent_of(path), set()).add(name_of(path))
        transaction = Transaction(
            zxid=self.zxid,
            touched=tuple(stage.touched),
            deleted=tuple(path for path in stage.touched if stage.changed[path] is None),
            parents=tuple(stage.parents),
        )
        self.log.append(transaction)


class _Stage:
    """The changes of a transaction that is being applied."""

    def __init__(self, znodes: MockZnodes, session: int, now_ms: int) -> None:
        self._znodes = znodes
        self._zxid = znodes.zxid + 1
        self._session = session
        self._now_ms = now_ms
        self.changed: dict[str, Znode | None] = {}
        self.touched: dict[str, None] = {}
        self.parents: dict[str, None] = {}

    def apply(self, operation: Operation) -> Result:
        match operation:
            case Create():
                return self._create(operation)
            case SetData():
                return self._set(operation)
            case Delete():
                self._delete(operation)
            case Check():
                self._existing(operation.path, operation.version)
        return None

    def _find(self, path: str) -> Znode | None:
        if path in self.changed:
            return self.changed[path]
        return self._znodes.find(path, self._znodes.zxid)

    def _existing(self, path: str, version: int) -> Znode:
        znode = self._find(path)
        if znode is None:
            raise NoNode(f"{path} does not exist")
        if version not in (ANY_VERSION, znode.stat.version):
            raise BadVersion(f"{path} has version {znode.stat.version} instead of {version}")
        return znode

    def _create(self, operation: Create) -> str:
        parent_path = parent_of(operation.path)
        parent = self._existing(parent_path, ANY_VERSION)
        path = operation.path
        if operation.sequential:
            path += f"{parent.child_changes:010d}"
        if self._find(path) is not None:
            raise NodeExists(f"{path} exists")
        stat = ZnodeStat(
            version=0,
            czxid=self._zxid,
            mzxid=self._zxid,
            ctime_ms=self._now_ms,
            ephemeral_owner=self._session if operation.ephemeral else 0,
        )
        self._children_changed(parent_path, parent)
        self.changed[path] = Znode(data=operation.data, stat=stat)
        self.touched[path] = None
        return path

    def _set(self, operation: SetData) -> ZnodeStat:
        znode = self._existing(operation.path, operation.version)
        stat = replace(znode.stat, version=znode.stat.version + 1, mzxid=self._zxid)
        self.changed[operation.path] = replace(znode, data=operation.data, stat=stat)
        self.touched[operation.path] = None
        return stat

    def _delete(self, operation: Delete) -> None:
        path = operation.path
        self._existing(path, operation.version)
        if any(self._find(f"{path}/{name}") for name in self._child_names(path)):
            raise NotEmpty(f"{path} has children")
        self.changed[path] = None
        self.touched[path] = None
        parent_path = parent_of(path)
        self._children_changed(parent_path, self._existing(parent_path, ANY_VERSION))

    def _child_names(self, path: str) -> set[str]:
        staged = {name_of(one) for one in self.changed if parent_of(one) == path}
        return staged | set(self._znodes.children(path, self._znodes.zxid))

    def _children_changed(self, path: str, znode: Znode) -> None:
        self.changed[path] = replace(znode, child_changes=znode.child_changes + 1)
        self.parents[path] = None
