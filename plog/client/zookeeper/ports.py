"""The port to ZooKeeper: what a consumer requires of a client.

plog/zookeeper/kazoo_client.py implements it; its results are then `DeferredResult`s. All methods
are called, and all callbacks run, in the network's thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from plog.zookeeper.operations import Operation, Result, SessionState, ZnodeStat

Watch: TypeAlias = Callable[[], None]
"""Called once, after the next change; never called if the connection is lost before."""


class ZooKeeperConnection(Protocol):
    """A client with one session at a time.

    Each method sends its request before it returns an awaitable for the response. Requests are
    sent, and answered, in order. Requests that are made while the connection is lost wait for the
    next connection. A request fails with ConnectionLost or SessionExpired if the connection is lost
    before its response arrives; a write may then have been applied or not.
    """

    @property
    def session_id(self) -> int:
        """The id of the current session; 0 before the first connection."""
        ...

    @property
    def problem(self) -> str:
        """The addresses, and why they cannot be reached, for error messages."""
        ...

    def listen(self, on_state: Callable[[SessionState], None]) -> None:
        """Call `on_state` after every change of the session's state.

        Pending requests fail before SUSPENDED and EXPIRED are reported.
        """
        ...

    def get(self, path: str, watch: Watch | None = None) -> Awaitable[tuple[bytes, ZnodeStat]]:
        """Return the data of a znode; fails with NoNode, and then sets no watch."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Awaitable[ZnodeStat | None]:
        """Return the statistics of a znode, or None; the watch also waits for its creation."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> Awaitable[list[str]]:
        """Return the names of a znode's children, in no order; fails with NoNode."""
        ...

    def multi(self, operations: Sequence[Operation]) -> Awaitable[list[Result]]:
        """Apply all operations, or none; fails with MultiFailed if none was applied."""
        ...

    def sync(self) -> Awaitable[None]:
        """Wait until this client's server has applied all earlier writes of all clients."""
        ...

    def start(self) -> None:
        """Start to connect; the client connects again whenever the connection is lost."""
        ...

    def close(self) -> Awaitable[None]:
        """End the session; completes when the servers have removed its ephemeral znodes."""
        ...
