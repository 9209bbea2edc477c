"""Partition reassignments, which cannot move a replica yet.

This module does not perform I/O. A reassignment leaves the partition where it is and thus
completes immediately, so there is never a reassignment to list or cancel. The replication factor
cannot change either, so a request that forbids changing it (KIP-860) is handled like any other.
Source: Kafka 4.0 ReplicationControlManager.alterPartitionReassignment; KIP-455.
"""

from __future__ import annotations

from collections.abc import Sequence

from plog.errors import (
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from plogd.controller.replica_placement import check_replicas
from plogd.metadata.cache import TopicState


def check_reassignment(
    topic: TopicState | None,
    number: int,
    replicas: Sequence[int] | None,
    *,
    brokers: Sequence[int],
) -> None:
    """Raise the KafkaError for the client unless `replicas` are valid and host the partition.

    `replicas` is None in a request to cancel a reassignment in progress.
    """
    if topic is None or not 0 <= number < len(topic.partitions):
        raise UnknownTopicOrPartition(f"the topic or its partition {number} does not exist")
    state = topic.partitions[number]
    # Reassignments complete immediately, so there is never one to cancel.
    if replicas is None:
        raise NoReassignmentInProgress(f"{topic.name}-{number} is not being reassigned")
    check_replicas(number, replicas, brokers)
    if tuple(replicas) != state.replicas:
        raise InvalidReplicaAssignment(
            f"cannot move {topic.name}-{number} from brokers {list(state.replicas)} to"
            f" {list(replicas)}: plog does not support reassignments yet"
        )
