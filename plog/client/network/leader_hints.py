"""The leaders that brokers name in Produce and Fetch responses (KIP-951).

A broker that does not lead a partition any more names the new leader, and its address, next to the
error. The client can send the next request to that leader at once, without new metadata. A leader
counts only if its epoch is newer than the known one, and if its address is known.

Source: Kafka 4.3 Metadata.updatePartitionLeadership.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from plog.client.network.metadata import Broker, ClusterMetadata, PartitionMetadata
from plog.errors import ErrorCode
from plog.types import TopicPartition

_NAMING: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The errors after which a response names the leader."""

Leaders: TypeAlias = Mapping[TopicPartition, tuple[int, int]]
"""The broker id of partitions' leaders, with the leader epoch."""


class CurrentLeader(Protocol):
    """The leader in the result for a partition; both numbers are -1 if it is unknown."""

    leader_id: int
    leader_epoch: int


class LeaderEndpoint(Protocol):
    """The address of a leader in a response, on the listener of the client."""

    node_id: int
    host: str
    port: int
    rack: str | None


def named_leader(error_code: int, current: CurrentLeader) -> tuple[int, int] | None:
    """Return the id and the epoch of the leader that the result for a partition names, or None."""
    if error_code not in _NAMING or current.leader_id < 0 or current.leader_epoch < 0:
        return None
    return current.leader_id, current.leader_epoch


def with_leaders(
    metadata: ClusterMetadata, leaders: Leaders, endpoints: Iterable[LeaderEndpoint]
) -> tuple[ClusterMetadata, frozenset[TopicPartition]]:
    """Return the metadata with newer leaders, and the partitions that have one."""
    brokers = dict(metadata.brokers)
    for one in endpoints:
        brokers[one.node_id] = Broker(id=one.node_id, host=one.host, port=one.port, rack=one.rack)
    changed: dict[str, dict[int, PartitionMetadata]] = {}
    for key, (leader, epoch) in leaders.items():
        known = metadata.partition(key)
        if known is not None and leader in brokers and epoch > known.leader_epoch:
            moved = replace(known, leader=leader, leader_epoch=epoch, error=ErrorCode.NONE)
            changed.setdefault(key.topic, {})[key.partition] = moved
    if not changed:
        return metadata, frozenset()
    topics = dict(metadata.topics)
    for name, moved_by_number in changed.items():
        partitions = list(topics[name].partitions)
        for number, partition in moved_by_number.items():
            partitions[number] = partition
        topics[name] = replace(topics[name], partitions=tuple(partitions))
    # No topic is new, so nothing counts as answered.
    updated = replace(metadata, brokers=brokers, topics=topics, answered=frozenset())
    return updated, frozenset(
        TopicPartition(name, number) for name, numbers in changed.items() for number in numbers
    )
