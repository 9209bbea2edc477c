"""Validate and place new partitions for an existing topic.

This module does not perform I/O: `plan_partitions` returns the replicas of the new partitions, or
raises the error for the client. controller.py then creates the logs, and only then writes the
partitions to the metadata store, because Kafka does not have a record that could remove a partition
whose log cannot be created.

Source: Kafka 4.0 ReplicationControlManager.createPartitions and, for internal topics, TopicCommand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from plog.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    PolicyViolation,
    ReassignmentInProgress,
    UnknownTopicOrPartition,
)
from plogd.controller.replica_placement import (
    NO_RACKS,
    Assignments,
    assign_replicas,
    check_replicas,
)
from plogd.controller.topic_creation import MAX_PARTITIONS
from plogd.metadata.cache import PartitionState, TopicState


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """A request to increase a topic's partition count, as in Kafka's Admin client."""

    topic: str
    count: int
    """The total count, including existing partitions."""
    assignments: Sequence[Sequence[int]] | None = None
    """The brokers of each new partition, if the request assigns them."""


def plan_partitions(
    requested: NewPartitions,
    topic: TopicState | None,
    brokers: Sequence[int],
    racks: Mapping[int, str] = NO_RACKS,
) -> Assignments:
    """Return the new partitions' replicas by number; `topic` is None if it does not exist.

    `brokers` are the live brokers in ascending order, and `racks` their racks.
    """
    if topic is None:
        raise UnknownTopicOrPartition(f"topic '{requested.topic}' does not exist")
    if topic.is_internal:
        raise InvalidRequest(
            f"cannot add partitions to internal topic '{topic.name}': coordinators use the"
            " partition count to locate their state"
        )
    if any(state.is_reassigning for state in topic.partitions):
        # As in Kafka. The new partitions would copy the replication factor of a partition that has
        # the replicas of two assignments.
        raise ReassignmentInProgress(
            f"cannot add partitions to topic '{topic.name}' while its partitions are being moved;"
            " wait for the reassignment, or cancel it"
        )
    present = len(topic.partitions)
    if requested.count <= present:
        raise InvalidPartitions(
            f"cannot expand topic '{topic.name}' to {requested.count} partitions: it already has"
            f" {partition_count_text(present)}"
        )
    if requested.count > MAX_PARTITIONS:
        raise PolicyViolation(
            f"cannot expand topic '{topic.name}': a topic can have at most {MAX_PARTITIONS}"
            " partitions"
        )
    # As in Kafka, the first partition determines the replication factor of the new partitions.
    factor = len(topic.partitions[0].replicas)
    if requested.assignments is None:
        # As in Kafka's AdminZkClient.createNewPartitionsAssignment, the placement of the existing
        # partitions continues, as far as it can be derived from partition 0.
        first = topic.partitions[0].replicas[0]
        start = next((index for index, broker in enumerate(brokers) if broker >= first), 0)
        return assign_replicas(
            brokers,
            requested.count - present,
            factor,
            racks=racks,
            start=start,
            shift=start,
            first_partition=present,
        )
    return _assigned(requested.assignments, present, requested.count, factor, brokers)


def _assigned(
    assignments: Sequence[Sequence[int]],
    present: int,
    count: int,
    factor: int,
    brokers: Sequence[int],
) -> Assignments:
    """Return the requested assignments if they match the topic's replication factor."""
    if len(assignments) != count - present:
        raise InvalidReplicaAssignment(
            f"the request adds {partition_count_text(count - present)}"
            f" but assigns {len(assignments)}"
        )
    for number, replicas in enumerate(assignments, present):
        check_replicas(number, replicas, brokers)
        if len(replicas) != factor:
            raise InvalidReplicaAssignment(
                f"partition {number} is assigned {len(replicas)} replica(s), but the topic's other"
                f" partitions have {factor}"
            )
    return {number: tuple(replicas) for number, replicas in enumerate(assignments, present)}


def first_state(
    number: int, replicas: tuple[int, ...], live: Collection[int] | None = None
) -> PartitionState:
    """Return a new partition's state: all replicas on live brokers are in sync, the first leads.

    As in Kafka's PartitionStateMachine, a replica on a dead broker must copy the records before it
    may lead. Without a live replica, or if `live` is None, all replicas are in sync.
    """
    isr = tuple(replica for replica in replicas if live is None or replica in live) or replicas
    return PartitionState(
        partition=number,
        leader=isr[0],
        leader_epoch=0,
        replicas=replicas,
        isr=isr,
        partition_epoch=0,
    )


def with_partitions(topic: TopicState, new: tuple[PartitionState, ...]) -> TopicState:
    """Return `topic` with the additional partitions `new`."""
    return replace(topic, partitions=topic.partitions + new)


def partition_count_text(partitions: int) -> str:
    """Return a number of partitions as text.

    >>> partition_count_text(1), partition_count_text(3)
    ('1 partition', '3 partitions')
    """
    return f"{partitions} partition{'' if partitions == 1 else 's'}"
