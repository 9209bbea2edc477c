"""The client's view of the cluster: connections to brokers, and requests with retries.

A `Cluster` keeps one connection to each broker that it needs. It finds the leader of a partition,
the coordinator of a group and the controller, and it retries requests. metadata_updater.py provides
the metadata; callers interpret the responses. Every request in a call ends at the call's
`Deadline`. Without a deadline, ``default.api.timeout.ms`` limits the request and its retries. Use
only in the network's thread.

Source: Kafka 4.3 NetworkClient, ClientUtils; KIP-219, KIP-699, KIP-919.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeVar

from plog.client.errors import BrokerNotAvailable, ClosedError, error_about
from plog.client.network.connection import Connection
from plog.client.network.deadline import Deadline
from plog.client.network.metadata import NO_NODE, Broker
from plog.client.network.metadata_updater import MetadataUpdater
from plog.client.network.node import Node, security_of
from plog.client.network.ports import Network
from plog.client.settings import ClientSettings
from plog.errors import ErrorCode, KafkaError, error_from_code
from plog.types import TopicPartition
from plog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from plog.wire.schema import ApiMessage

log = logging.getLogger("plog.client")

R = TypeVar("R", bound=ApiMessage)

# From this version on, a FindCoordinator request can contain several keys (KIP-699).
_FIRST_COORDINATOR_BATCH = 4


class CoordinatorKind(IntEnum):
    """The kind of a coordinator, with the numbers that FindCoordinator uses."""

    GROUP = 0
    TRANSACTION = 1


class Cluster(MetadataUpdater):
    """A cluster's brokers, the connections to them, and the newest metadata.

    With `auto_create_topics`, brokers may create missing topics that the client looks up.
    """

    def __init__(
        self, network: Network, settings: ClientSettings, *, auto_create_topics: bool = False
    ) -> None:
        super().__init__(network, settings, auto_create_topics=auto_create_topics)
        self.trouble: KafkaError | None = None
        """The error from the last request that any broker may answer; None if it succeeded."""
        self._security = security_of(settings)
        self._seeds = [
            # As in Kafka, bootstrap servers have negative ids, which no broker has.
            Node(network, settings, self._security, -1 - number, host, port)
            for number, (host, port) in enumerate(settings.bootstrap_addresses())
        ]
        self._nodes: dict[int, Node] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._has_warned = False

    # -- connections --------------------------------------------------------------------------

    async def connection(self, node_id: int, *, deadline: Deadline | None = None) -> Connection:
        """Return an open connection to a broker; open it if necessary.

        After a failed attempt, the next attempt waits for ``reconnect.backoff.ms``. Raises
        ConnectionFailed, AuthenticationFailed, or BrokerNotAvailable for an unknown broker.
        """
        self._check_open()
        node = self._nodes.get(node_id)
        # The broker may have joined the cluster since the last refresh.
        if node is None:
            await self.refresh((), deadline=deadline)
            node = self._nodes.get(node_id)
        if node is None:
            raise BrokerNotAvailable(f"broker {node_id} is not in the cluster")
        return await node.connected(deadline)

    def node_apart(self, broker: Broker) -> Node:
        """Return a node with its own connection, which the caller must close.

        Use it for requests that the broker may answer late: a broker answers requests on a
        connection in order, so a late response delays all later responses.
        """
        return Node(
            self.network, self._settings, self._security, broker.id, broker.host, broker.port
        )

    def idle_connection(self, node_id: int) -> Connection | None:
        """Return the connection to a broker if it is open. This is the hot path: it never waits."""
        # `use` also prevents the connection from being closed as idle.
        node = self._nodes.get(node_id)
        return None if node is None else node.use()

    # -- requests -----------------------------------------------------------------------------

    async def ask_node(
        self,
        node_id: int,
        request: ApiMessage,
        response: type[R],
        *,
        deadline: Deadline | None = None,
    ) -> R:
        """Send one request to a broker. Raises errors from `connection` and `Channel.ask`."""
        connection = await self.connection(node_id, deadline=deadline)
        return await self._ask(connection, request, response, deadline)

    async def ask_any(
        self, request: ApiMessage, response: type[R], *, deadline: Deadline | None = None
    ) -> R:
        """Send a request to any broker; after a failure, try the others until the deadline.

        Raises permanent errors immediately, and the last retriable error at the deadline.
        """
        deadline = deadline or self.deadline()
        if self._settings.uses_controllers and self.metadata.controller_id == NO_NODE:
            # Only the active controller is certain to have the latest metadata, so find it first.
            await self.refresh((), deadline=deadline)
        return await self._ask_some(request, response, deadline)

    async def _ask_some(self, request: ApiMessage, response: type[R], deadline: Deadline) -> R:
        backoff = self.backoff(deadline)
        while True:
            error: KafkaError | None = None
            for node in self._candidates():
                self._check_open()
                try:
                    connection = await node.connected(deadline)
                    answer = await self._ask(connection, request, response, deadline)
                except KafkaError as failure:
                    self.trouble = failure
                    if not failure.retriable:
                        raise
                    error = failure
                else:
                    self.trouble = None
                    self._has_warned = False
                    return answer
                if deadline.is_over:
                    break
            assert error is not None, "there is always a bootstrap server"
            # Retries may continue for a long time, so log only once until a broker responds.
            if not self._has_warned:
                log.warning("%s; retrying", str(error).rstrip("."))
                self._has_warned = True
            await backoff.wait_or_raise(error)

    async def ask_controller(
        self,
        request: ApiMessage,
        response: type[R],
        *,
        deadline: Deadline | None = None,
        retry_on: Callable[[R], bool] = lambda _: False,
    ) -> R:
        """Send a request to the controller; retry if it has moved, according to `retry_on`."""
        backoff = self.backoff(deadline)
        deadline = backoff.deadline
        while True:
            try:
                if self.metadata.controller_id == NO_NODE:
                    await self.refresh((), deadline=deadline)
                controller = self.metadata.controller_id
                # In a KRaft cluster, any broker forwards the request to the controller.
                if controller == NO_NODE:
                    answer = await self.ask_any(request, response, deadline=deadline)
                else:
                    answer = await self.ask_node(controller, request, response, deadline=deadline)
                if not retry_on(answer) or backoff.is_over:
                    return answer
                error = error_from_code(ErrorCode.NOT_CONTROLLER, f"broker {controller}")
            except KafkaError as failure:
                # If the controller has left the cluster, another controller is elected, so retry.
                has_left = failure.code == ErrorCode.BROKER_NOT_AVAILABLE
                if not failure.retriable and not has_left:
                    raise
                error = failure
            await backoff.wait_or_raise(error)
            # Find the new controller only after the backoff: for a moment, brokers may still report
            # the old one.
            await self.refresh((), deadline=deadline)

    async def _ask(
        self,
        connection: Connection,
        request: ApiMessage,
        response: type[R],
        deadline: Deadline | None,
    ) -> R:
        # KIP-219: a broker that throttles a client responds immediately and expects it to pause.
        pause_s = connection.throttled_until_s - self.network.now_s()
        if pause_s > 0:
            await self.network.sleep(pause_s if deadline is None else min(pause_s, deadline.left_s))
        answer = await connection.ask(request, response, deadline=deadline)
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms > 0:
            connection.throttled_until_s = self.network.now_s() + throttle_ms / 1000
        return answer

    async def any_connection(self) -> Connection:
        """Return an open connection to any broker. Retries and raises like `ask_any`."""
        backoff = self.backoff()
        while True:
            self._check_open()
            try:
                return await self._first_reachable(backoff.deadline)
            except KafkaError as failure:
                if not failure.retriable:
                    raise
                await backoff.wait_or_raise(failure)

    async def _first_reachable(self, deadline: Deadline) -> Connection:
        # There is always a bootstrap server, so `error` is set when the loop ends.
        for candidate in self._candidates():
            try:
                return await candidate.connected(deadline)
            except KafkaError as failure:
                if not failure.retriable:
                    raise
                error = failure
        raise error

    def _candidates(self) -> Sequence[Node]:
        """Return all nodes in order of preference.

        Connected nodes with few requests in flight come first, and bootstrap servers last.
        """

        # Clients that bootstrap from controllers prefer the active controller (KIP-919).
        active = self.metadata.controller_id if self._settings.uses_controllers else None

        def cost(node: Node) -> tuple[bool, bool, int, float, float]:
            connection = node.open_connection
            busy = connection.in_flight if connection is not None else 0
            is_second = active is not None and node.id != active
            # Break ties at random, so that not all clients choose the same broker.
            return is_second, connection is None, busy, node.next_try_s, self.network.random()

        # Omit bootstrap servers that are known brokers; otherwise, they would get a second
        # connection.
        known = {(node.host, node.port) for node in self._nodes.values()}
        nodes = sorted(self._nodes.values(), key=cost)
        nodes += sorted((s for s in self._seeds if (s.host, s.port) not in known), key=cost)
        return nodes

    # -- metadata -----------------------------------------------------------------------------

    def _brokers_changed(self) -> None:
        for broker in self.metadata.brokers.values():
            self._place(broker.id, broker.host, broker.port)
        for removed in self._nodes.keys() - self.metadata.brokers.keys():
            self._nodes.pop(removed).close()

    def _close_idle_connections(self) -> None:
        for node in (*self._nodes.values(), *self._seeds):
            node.close_if_idle(self._settings.connections_max_idle_ms / 1000)

    def _place(self, node_id: int, host: str, port: int) -> None:
        """Set a broker's address; close its connection if the address has changed."""
        node = self._nodes.get(node_id)
        if node is not None and (node.host, node.port) == (host, port):
            return
        if node is not None:
            node.close()
        self._nodes[node_id] = Node(
            self.network, self._settings, self._security, node_id, host, port
        )

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the id of the partition's leader, or None if no leader is known."""
        return self.metadata.leader_of(partition)

    # -- coordinators -------------------------------------------------------------------------

    async def coordinator(
        self,
        key: str,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
        *,
        deadline: Deadline | None = None,
    ) -> int:
        """Return the id of the broker that coordinates a group or a transaction.

        Raises permanent errors, such as GroupAuthorizationFailed, immediately. Raises
        RequestTimedOut or CoordinatorNotAvailable if the coordinator is not found by the deadline.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        backoff = self.backoff(deadline)
        while True:
            # The cluster may have been closed during the backoff.
            self._check_open()
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            error = await self._find_coordinator(key, kind, request, backoff.deadline)
            if error is None:
                return self._coordinators[kind, key]
            if not error.retriable:
                raise error
            await backoff.wait_or_raise(error)

    async def _find_coordinator(
        self, key: str, kind: CoordinatorKind, request: FindCoordinatorRequest, deadline: Deadline
    ) -> KafkaError | None:
        try:
            node = await self._first_reachable(deadline)
        except KafkaError as failure:
            if not failure.retriable:
                raise
            return failure
        # Before KIP-699, the request has a single key.
        if node.version_of(request) < _FIRST_COORDINATOR_BATCH:
            request = FindCoordinatorRequest(key=key, key_type=kind)
        try:
            answer = await self._ask(node, request, FindCoordinatorResponse, deadline)
        except KafkaError as failure:
            return failure
        # From version 4 on, the response has an entry for each key.
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            if found.error_message:
                return error_from_code(found.error_code, found.error_message)
            return error_about(found.error_code, f"cannot find the coordinator of {key}")
        # The coordinator may not be in the metadata yet.
        self._place(found.node_id, found.host, found.port)
        self._coordinators[kind, key] = found.node_id
        return None

    def forget_coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        """Look up the coordinator again next time: it has moved or does not respond."""
        self._coordinators.pop((kind, key), None)

    # -- close --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all connections; pending requests fail. Repeated calls have no effect."""
        self._is_closed = True
        if self._refresher is not None:
            self._refresher.cancel()
        for node in (*self._nodes.values(), *self._seeds):
            node.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the client is closed; create a new one")
