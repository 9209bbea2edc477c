"""The connection to a group's coordinator: one of its own, found and found again.

A broker answers the requests of one connection in their order, and it may answer a JoinGroup
minutes later, when all members have joined. So what a group has to say does not share the
connection that fetches use, even where one broker is both leader and coordinator.
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
"""Codes of a broker that is not the coordinator, or not any more."""


class CoordinatorConnection:
    """See the module's text. Used from the network's thread only."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._node: Node | None = None
        self._is_stale = False
        self._is_closed = False

    @property
    def is_known(self) -> bool:
        """Whether it was found, and nothing has been heard against it since."""
        return self._node is not None and not self._is_stale

    async def connected(self, deadline: Deadline | None = None) -> Connection:
        """Return the open connection to the coordinator.

        Raises as `Cluster.coordinator` and `Node.connected` do.
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
            broker = (await self._cluster.refresh((), deadline=deadline)).brokers.get(node_id)
        if broker is None:
            self.forget()
            raise CoordinatorNotAvailable(
                f"group {self.group_id}: its coordinator, broker {node_id}, is not in the cluster"
            )
        node = self._node
        if node is None or (node.id, node.host, node.port) != (node_id, broker.host, broker.port):
            if node is not None:
                node.close()
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
        """Ask the coordinator once; `request` may depend on what the broker speaks.

        If the connection breaks or stays silent, the coordinator is looked up again next time.
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
        """As `ask`, on a connection that `connected` has returned: the request leaves now."""
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
        """Look for the coordinator anew if that is what `error` means."""
        if error.code in MOVED:
            self.forget()

    def forget(self) -> None:
        """It is another one, or cannot be reached: look for it when it is needed again.

        An open connection stays, for it may be found to be the same one.
        """
        self._cluster.forget_coordinator(self.group_id)
        self._is_stale = True

    def hang_up(self) -> None:
        """Close the connection, to be heard on a new one: the broker may hold back an answer."""
        if self._node is not None and self._node.open_connection is not None:
            self._node.open_connection.close()

    def close(self) -> None:
        """Close the connection; what was asked fails."""
        self._is_closed = True
        if self._node is not None:
            self._node.close()
