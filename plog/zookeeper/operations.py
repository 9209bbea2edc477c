"""ZooKeeper's operations as values: what a multi contains, what it returns, and the errors.

Pure: kazoo_client.py sends these operations, and mock_zookeeper.py of plogd.testing applies them
in memory. Source: ZooKeeper 3.8 MultiOperationRecord, KeeperException, Stat.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from plog.error_base import PlogError

ANY_VERSION: Final = -1
"""In a `SetData`, a `Delete` or a `Check`: whatever version the znode has."""
MAX_ZNODE_BYTES: Final = 1_000_000
"""Largest data of a znode: slightly less than jute.maxbuffer (1 MiB), which includes headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZnodeStat:
    """The statistics of a znode that plog uses.

    Attributes:
        version: number of changes of its data since it was created.
        czxid: number of the transaction that created it; unique in an ensemble.
        mzxid: number of the transaction that changed its data last.
        ctime_ms: time of its creation, by the clock of the ensemble's leader.
        ephemeral_owner: id of the session that owns it; 0 for a persistent znode.
    """

    version: int
    czxid: int
    mzxid: int
    ctime_ms: int = 0
    ephemeral_owner: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create a znode, whose parent must exist; `sequential` appends a number to its path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    """Replace the data of a znode that has the given version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete a znode that has the given version and no children."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Change nothing, but fail unless the znode has the given version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check
Result: TypeAlias = str | ZnodeStat | None
"""The path for a `Create`, the statistics for a `SetData`, None for the others."""


class SessionState(Enum):
    """The state of the session, as its client sees it."""

    CONNECTED = "connected"
    # The session may have expired already; only a server knows.
    SUSPENDED = "suspended"
    """The connection is lost. All watches are gone, and pending requests have failed."""
    EXPIRED = "expired"
    """The session has ended; its ephemeral znodes are gone. The client opens a new session."""


class ZooKeeperError(PlogError):
    """A request failed."""


class NoNode(ZooKeeperError):
    """The znode, or the parent of the znode to create, does not exist."""


class NodeExists(ZooKeeperError):
    """The znode to create exists."""


class BadVersion(ZooKeeperError):
    """The znode does not have the expected version."""


class NotEmpty(ZooKeeperError):
    """The znode to delete has children."""


class ConnectionLost(ZooKeeperError):
    """The connection was lost before the response: a write may have been applied or not."""


class SessionExpired(ZooKeeperError):
    """The session has ended. A write that was in flight may have been applied or not."""


class ClientClosed(ZooKeeperError):
    """The client was closed. A write that was in flight may have been applied or not."""


class MultiFailed(ZooKeeperError):
    """A multi was not applied, because of its operation number `index`, which caused `error`."""

    def __init__(self, index: int, error: ZooKeeperError) -> None:
        super().__init__(f"operation {index} failed: {error}")
        self.index = index
        self.error = error


def parent_of(path: str) -> str:
    """Return the path of a znode's parent.

    >>> parent_of("/brokers/ids"), parent_of("/brokers")
    ('/brokers', '/')
    """
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """Return the last part of a path.

    >>> name_of("/brokers/ids")
    'ids'
    """
    return path.rpartition("/")[2]
