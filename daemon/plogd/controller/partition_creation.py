"""More partitions for a topic that exists: what may be asked for, and the topic as it will be.

Pure: `plan_partitions` gives the new partitions' replicas or raises the error the client is to see.
controller.py takes the steps: it has the new logs made before it writes the partitions down. Kafka
has no record that takes a partition away again, so a log that cannot be made must be known before.

Source: Kafka 4.0 ReplicationControlManager.createPartitions; for internal topics its TopicCommand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from plog.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from plogd.controller.replica_placement import Assignments, assign_replicas, check_replicas
from plogd.controller.topic_creation import MAX_PARTITIONS
from plogd.metadata.cache import PartitionState, TopicState


@dataclass(frozen=True, slots=True, kw_only=True)
class MorePartitions:
    """How many partitions a topic is to have, as somebody asks for it."""

    topic: str
    count: int
    """In all, the present ones included."""
    assignments: Sequence[Sequence[int]] | None = None
    """The brokers of each new partition, if they are chosen by hand."""


def plan_partitions(
    asked: MorePartitions, topic: TopicState | None, brokers: Sequence[int]
) -> Assignments:
    """The replicas of the partitions that `topic` (None: there is none) is to get, by number."""
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic '{asked.topic}'")
    if topic.is_internal:
        raise InvalidRequest(
            f"Topic '{topic.name}' is internal: its coordinators find what they keep there by the "
            "number of its partitions."
        )
    present = len(topic.partitions)
    if asked.count <= present:
        raise InvalidPartitions(
            f"Topic '{topic.name}' has {counted(present)}; {asked.count} would not be more."
        )
    if asked.count > MAX_PARTITIONS:
        raise PolicyViolation(
            f"Topic '{topic.name}' would have more than {MAX_PARTITIONS} partitions."
        )
    factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        placed = assign_replicas(
            brokers, asked.count - present, factor, start=present % len(brokers)
        )
        return {present + number: replicas for number, replicas in placed.items()}
    return _assigned(asked.assignments, present, asked.count, factor, brokers)


def _assigned(
    assignments: Sequence[Sequence[int]],
    present: int,
    count: int,
    factor: int,
    brokers: Sequence[int],
) -> Assignments:
    """The assignments by hand, if they are as the topic's other partitions."""
    if len(assignments) != count - present:
        raise InvalidReplicaAssignment(
            f"{counted(count - present)} would be added, but {len(assignments)} were assigned."
        )
    for number, replicas in enumerate(assignments, present):
        check_replicas(number, replicas, brokers)
        if len(replicas) != factor:
            raise InvalidReplicaAssignment(
                f"partition {number} would have {len(replicas)} replica(s), the topic's others "
                f"have {factor}"
            )
    return {number: tuple(replicas) for number, replicas in enumerate(assignments, present)}


def first_state(number: int, replicas: tuple[int, ...]) -> PartitionState:
    """A new partition: the preferred leader leads, all replicas are in sync, the epoch is 0."""
    return PartitionState(
        partition=number,
        leader=replicas[0],
        leader_epoch=0,
        replicas=replicas,
        isr=replicas,
        partition_epoch=0,
    )


def extended(topic: TopicState, new: tuple[PartitionState, ...]) -> TopicState:
    """`topic` with more partitions."""
    return replace(topic, partitions=topic.partitions + new)


def counted(partitions: int) -> str:
    """A number of partitions, for people.

    >>> counted(1), counted(3)
    ('1 partition', '3 partitions')
    """
    return f"{partitions} partition{'' if partitions == 1 else 's'}"
