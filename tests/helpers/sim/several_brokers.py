"""The metadata of a cluster of several brokers, shown by a single `SimBroker`.

The other brokers do not exist: only the metadata cache of the real broker lists them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plogd.metadata.cache import LiveBroker, PartitionState, TopicState
from plogd.metadata.store import Endpoint
from tests.helpers.sim.sim_broker import SimBroker


def live_broker(broker_id: int, *listener_names: str, rack: str | None = None) -> LiveBroker:
    """Return a broker on host ``b<id>``, whose first listener has port 9092, the next one 9093."""
    endpoints = {
        name: Endpoint(
            name=name, host=f"b{broker_id}", port=9092 + index, security_protocol="PLAINTEXT"
        )
        for index, name in enumerate(listener_names or ("PLAINTEXT",))
    }
    return LiveBroker(broker_id=broker_id, endpoints=endpoints, rack=rack)


def add_brokers(broker: SimBroker, *others: LiveBroker, controller_id: int = 1) -> None:
    """Show `others` to clients in addition to the real broker."""
    cache = broker.broker.cache
    own = cache.live_brokers[broker.config.node_id]
    cache.update_brokers([own, *others], controller_id=controller_id)


def set_partition(broker: SimBroker, topic: str, number: int = 0, **state: Any) -> None:
    """Replace fields in the state of a partition that clients see."""
    cache = broker.broker.cache
    known = cache.topic(topic)
    assert known is not None
    partitions = list(known.partitions)
    partitions[number] = replace(partitions[number], **state)
    cache.update(replace(known, partitions=tuple(partitions)))


def add_topic_elsewhere(broker: SimBroker, name: str, *, leader: int) -> None:
    """Show a topic with one partition, whose only replica is on broker `leader`."""
    state = PartitionState(
        partition=0,
        leader=leader,
        leader_epoch=3,
        replicas=(leader,),
        isr=(leader,),
        partition_epoch=4,
    )
    topic_id = name.encode().ljust(16, b"-")
    broker.broker.cache.update(TopicState(name=name, topic_id=topic_id, partitions=(state,)))
