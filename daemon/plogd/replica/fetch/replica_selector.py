"""Select the replica from which a consumer reads: the leader, or a follower in the consumer's rack.

The leader decides, because it knows which followers have the records. Its response to a consumer
names the follower (``preferred_read_replica``). The consumer returns to the leader after
``metadata.max.age.ms``, or when the follower fails.

This module does not perform I/O. Called on the reactor thread by fetch_reader.py. Source: KIP-392;
Kafka 3.9 ReplicaManager.findPreferredReadReplica, RackAwareReplicaSelector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from plogd.metadata.cache import LiveBroker
from plogd.replica.partition import Partition


class ReplicaSelector(Protocol):
    """Kafka's interface of the same name."""

    def select(self, partition: Partition, offset: int, rack: str, listener_name: str) -> int:
        """Return the broker from which a consumer reads a partition at `offset`.

        `rack` is the rack of the consumer, and `listener_name` the listener that it can reach.
        Returns this broker's id unless this broker is the leader and another one is better.
        """
        ...


class RackAwareReplicaSelector:
    """Prefers the leader if it is in the consumer's rack; otherwise, followers in this rack.

    Args:
        live_brokers: returns the live brokers by id.
    """

    def __init__(self, live_brokers: Callable[[], Mapping[int, LiveBroker]]) -> None:
        self._live_brokers = live_brokers

    def select(self, partition: Partition, offset: int, rack: str, listener_name: str) -> int:
        """Return the most caught-up in-sync replica in `rack` that has `offset`, or this broker."""
        own_id, remote, live = partition.broker_id, partition.remote, self._live_brokers()
        own = live.get(own_id)
        if remote is None or (own is not None and own.rack == rack):
            return own_id
        # Only in-sync replicas: a consumer must not wait for a follower that has fallen behind.
        found = [
            (follower.end_offset, follower.caught_up_ms, broker_id)
            for broker_id, follower in remote.followers.items()
            if broker_id in partition.isr
            and follower.log_start_offset <= offset <= follower.end_offset
            and (broker := live.get(broker_id)) is not None
            and broker.rack == rack
            and listener_name in broker.endpoints
        ]
        return max(found)[-1] if found else own_id
