"""The port to ZooKeeper: what the store requires of a client.

Implementations: plog/zookeeper/kazoo_client.py, and plogd/testing/mock_zookeeper.py in virtual
time. All methods are called, and all callbacks run, on the reactor's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from plog.zookeeper.operations import Operation, Result, SessionState, ZnodeStat
from plogd.ports import Later

Watch: TypeAlias = Callable[[], None]
"""Called once, after the next change; never called if the connection is lost before."""


class ZooKeeperClient(Protocol):
    """A client with one session at a time.

    Requests are sent, and answered, in order. Requests that are made while the connection is lost
    wait for the next connection. A request fails with ConnectionLost or SessionExpired if the
    connection is lost before its response arrives; a write may then have been applied or not.
    """

    @property
    def session_id(self) -> int:
        """The id of the current session; 0 before the first connection."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout that the server has granted."""
        ...

    @property
    def handshake_age_ms(self) -> float:
        """Time since the client began the handshake of the present connection.

        The leader of the ensemble has noticed the session since then.
        """
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

    def get(self, path: str, watch: Watch | None = None) -> Later[tuple[bytes, ZnodeStat]]:
        """Return the data of a znode; fails with NoNode, and then sets no watch."""
        ...

    def exists(self, path: str, watch: Watch | None = None) -> Later[ZnodeStat | None]:
        """Return the statistics of a znode, or None; the watch also waits for its creation."""
        ...

    def children(self, path: str, watch: Watch | None = None) -> Later[list[str]]:
        """Return the names of a znode's children, in no order; fails with NoNode."""
        ...

    def multi(self, operations: Sequence[Operation]) -> Later[list[Result]]:
        """Apply all operations, or none; fails with MultiFailed if none was applied."""
        ...

    def sync(self) -> Later[None]:
        """Wait until this client's server has applied all earlier writes of all clients."""
        ...

    def confirm(self) -> Later[None]:
        """Wait for a transaction that changes nothing.

        In contrast to a read or `sync`, it shows that the client's server follows a leader that has
        had a quorum since this call.
        """
        ...


class ZooKeeperConnection(ZooKeeperClient, Protocol):
    """A client that its user starts and closes."""

    def start(self) -> None:
        """Start to connect; the client connects again whenever the connection is lost."""
        ...

    def close(self) -> Later[None]:
        """End the session; completes when the servers have removed its ephemeral znodes."""
        ...
