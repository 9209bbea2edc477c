"""Validate requests to reassign partitions, without I/O.

Every replica that a reassignment adds must be on a live broker. With the embedded store, the only
live broker hosts all partitions already, so a valid reassignment changes nothing.
controller/cluster/partition_reassignments.py carries reassignments out.

Source: Kafka 3.9 KafkaController.validateReplicas, maybeBuildReassignment; Kafka 4.1
ReplicationControlManager for KIP-860; KIP-455.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from plog.errors import (
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from plogd.controller.replica_assignment import ReplicaAssignment
from plogd.controller.replica_placement import check_replicas
from plogd.metadata.cache import PartitionState, TopicState


def partition_of(topic: TopicState | None, number: int) -> PartitionState:
    """Return a partition of `topic`. Raises UnknownTopicOrPartition."""
    if topic is None or not 0 <= number < len(topic.partitions):
        raise UnknownTopicOrPartition(f"the topic or its partition {number} does not exist")
    return topic.partitions[number]


def plan_reassignment(
    topic: TopicState | None,
    number: int,
    replicas: Sequence[int] | None,
    *,
    brokers: Collection[int],
    may_change_factor: bool = True,
) -> ReplicaAssignment:
    """Return the assignment with which a reassignment to `replicas` begins.

    It is the present one if `replicas` changes nothing. `replicas` is None in a request to cancel
    the reassignment in progress. Raises the KafkaError for the client: UnknownTopicOrPartition,
    NoReassignmentInProgress, InvalidReplicaAssignment, or InvalidReplicationFactor if a number of
    replicas must not change (KIP-860).
    """
    present = ReplicaAssignment.of(partition_of(topic, number))
    if replicas is None:
        if not present.is_reassigning:
            raise NoReassignmentInProgress(f"partition {number} is not being reassigned")
        return present.reassigned_to(present.origin)
    # As in Kafka, replicas that stay need not be running.
    check_replicas(number, replicas, (*brokers, *present.origin))
    if not may_change_factor and len(replicas) != len(present.origin):
        raise InvalidReplicationFactor(
            f"the replication factor of partition {number} would change from"
            f" {len(present.origin)} to {len(replicas)}, which the request forbids"
        )
    return present.reassigned_to(replicas)
