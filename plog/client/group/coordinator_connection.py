"""A group member's connection to its coordinator.

After the coordinator has moved, the next request looks it up again. Group requests have a
connection of their own, even if the coordinator is also the leader of fetched partitions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from plog.client.errors import ClosedError, ConnectionFailed
from plog.client.network.cluster import Cluster
from plog.client.network.connection import Connection
from plog.client.network.deadline import Deadline
from plog.client.network.node import Node
from plog.errors import CoordinatorNotAvailable, ErrorCode, KafkaError, RequestTimedOut
from plog.wire.schema import ApiMessage

R = TypeVar("R", bound=ApiMessage)

MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""The error codes from a broker that is not, or is no longer, the coordinator."""


class CoordinatorConnection:
    """A group's coordinator and the connection to it. Use only in the network's thread."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._node: Node | None = None
        self._is_stale = False
        self._is_closed = False

    @property
    def is_known(self) -> bool:
        """Whether the coordinator is known and no error has invalidated it."""
        return self._node is not None and not self._is_stale

    async def connected(self, deadline: Deadline | None = None) -> Connection:
        """Return an open connection to the coordinator.

        Raises the same errors as `Cluster.coordinator` and `Node.connected`.
        """
        if self._is_closed:
            raise ClosedError(f"the member of group {self.group_id} is closed")
        connection = self._usable()
        if connection is not None:
            return connection
        node_id = await self._cluster.coordinator(self.group_id, deadline=deadline)
        node = await self._node_at(node_id, deadline)
        self._is_stale = False
        try:
            return await node.connected(deadline)
        except (ConnectionFailed, RequestTimedOut):
            self.forget()
            raise

    def _usable(self) -> Connection | None:
        return None if self._node is None or self._is_stale else self._node.open_connection

    async def _node_at(self, node_id: int, deadline: Deadline | None) -> Node:
        broker = self._cluster.metadata.brokers.get(node_id)
        if broker is None:
            # The coordinator may have joined the cluster since the last metadata refresh.
            broker = (await self._cluster.refresh((), deadline=deadline)).brokers.get(node_id)
        if broker is None:
            self.forget()
            raise CoordinatorNotAvailable(
                f"group {self.group_id}: the coordinator, broker {node_id}, is not in the cluster"
            )
        node = self._node
        # A broker that replaces another may have the same id but a different address.
        if node is None or (node.id, node.host, node.port) != (node_id, broker.host, broker.port):
            if node is not None:
                node.close()
            # A broker answers the requests on a connection in order, and it may take minutes to
            # answer a JoinGroup. On a shared connection, fetches would wait for that response.
            node = self._node = self._cluster.node_apart(broker)
        return node

    async def ask(
        self,
        request: Callable[[Connection], ApiMessage] | ApiMessage,
        response: type[R],
        *,
        timeout_s: float | None = None,
        deadline: Deadline | None = None,
    ) -> R:
        """Send one request to the coordinator, without retries.

        `request` may be a function if the request depends on the broker's versions. If the
        connection is lost or the request times out, the next call looks up the coordinator again.
        """
        connection = await self.connected(deadline)
        return await self.ask_on(
            connection, request, response, timeout_s=timeout_s, deadline=deadline
        )

    def ask_on(
        self,
        connection: Connection,
        request: Callable[[Connection], ApiMessage] | ApiMessage,
        response: type[R],
        *,
        timeout_s: float | None = None,
        deadline: Deadline | None = None,
    ) -> Awaitable[R]:
        """Send a request now, on a connection that `connected` has returned."""
        message = request if isinstance(request, ApiMessage) else request(connection)
        answer = connection.ask(message, response, timeout_s=timeout_s, deadline=deadline)
        return self._answer(answer)

    async def _answer(self, answer: Awaitable[R]) -> R:
        try:
            return await answer
        except (ConnectionFailed, RequestTimedOut):
            self.forget()
            raise

    def moved(self, error: KafkaError) -> None:
        """Forget the coordinator if `error` means that it has moved."""
        # Other codes do not mean that the broker is not the coordinator.
        if error.code in MOVED:
            self.forget()

    def forget(self) -> None:
        """Look up the coordinator before the next request: it has moved or is unreachable."""
        # Keep an open connection, because the lookup may return the same broker.
        self._cluster.forget_coordinator(self.group_id)
        self._is_stale = True

    def disconnect(self) -> None:
        """Close the connection, so that the next request does not wait for a pending response."""
        if self._node is not None and self._node.open_connection is not None:
            self._node.open_connection.close()

    def close(self) -> None:
        """Close the connection; pending requests fail."""
        self._is_closed = True
        if self._node is not None:
            self._node.close()
