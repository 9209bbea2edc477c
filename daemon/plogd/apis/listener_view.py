"""The cluster as the clients of one listener see it: reachable brokers, leaders, offline replicas.

A client can use only the endpoints of the listener through which it has connected. A response
therefore lists, for each live broker that has a listener with this name, the endpoint of that
listener. This broker's own endpoint is always the address at which the client reaches it
(`Broker.address_for`).

Handlers create a view for each response. A view reads the metadata cache once, so that a response
that is encoded in slices is consistent.

Source: Kafka 3.9 ZkMetadataCache.getPartitionMetadata; KIP-103.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from plog.errors import ErrorCode
from plogd.broker import Broker
from plogd.connection_context import ConnectionContext
from plogd.metadata.cache import NO_LEADER, PartitionState


class Node(NamedTuple):
    """A live broker, and its address for the clients of the listener."""

    broker_id: int
    host: str
    port: int
    rack: str | None


# A plain tuple, because a response can describe thousands of partitions.
PartitionView: TypeAlias = tuple[int, int, list[int]]
"""A partition's leader and 0, or `NO_LEADER` and an error code; then its offline replicas.

The error is LEADER_NOT_AVAILABLE, or LISTENER_NOT_FOUND if the leader does not have the listener.
Offline replicas are on dead brokers or in failed log directories.
"""


class ListenerView:
    """The brokers and partitions that a client of `connection`'s listener can use."""

    __slots__ = (
        "_broker",
        "_connection",
        "_is_offline",
        "_live",
        "_live_ids",
        "_own_id",
        "reachable",
    )

    def __init__(self, connection: ConnectionContext, broker: Broker) -> None:
        self._broker = broker
        self._connection = connection
        self._is_offline = broker.replica_manager.is_offline
        self._own_id = broker.config.node_id
        self._live = broker.cache.live_brokers
        self._live_ids = broker.cache.live_broker_ids
        self.reachable = broker.cache.brokers_with(connection.listener_name)
        """The ids of the live brokers that have the listener."""
        # The client has just reached this broker, even if another endpoint is registered.
        if self._own_id in self._live and self._own_id not in self.reachable:
            self.reachable |= {self._own_id}

    def nodes(self) -> list[Node]:
        """Return all reachable brokers, in the order of their ids."""
        return [self._node(each) for each in self._live if each in self.reachable]

    def node(self, broker_id: int) -> Node | None:
        """Return a broker, or None if it is not reachable."""
        return self._node(broker_id) if broker_id in self.reachable else None

    def _node(self, broker_id: int) -> Node:
        broker = self._live[broker_id]
        if broker_id == self._own_id:
            host, port = self._broker.address_for(self._connection)
        else:
            endpoint = broker.endpoints[self._connection.listener_name]
            host, port = endpoint.host, endpoint.port
        return Node(broker_id, host, port, broker.rack)

    def partition(self, topic: str, state: PartitionState) -> PartitionView:
        """Return the leader of a partition and its offline replicas."""
        live, own_id, leader, replicas = self._live, self._own_id, state.leader, state.replicas
        # The controller may not know yet that the log directory has failed.
        is_failed = own_id in replicas and self._is_offline(topic, state.partition)
        if not is_failed and not state.offline_replicas and self._live_ids.issuperset(replicas):
            offline = []
        else:
            offline = [
                replica
                for replica in replicas
                if replica not in live
                or replica in state.offline_replicas
                or (is_failed and replica == own_id)
            ]
        if leader not in live or (is_failed and leader == own_id):
            return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE, offline
        if leader not in self.reachable:
            return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND, offline
        return leader, 0, offline
