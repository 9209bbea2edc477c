"""Moving partitions to other brokers: what may be asked for, with one broker.

Pure. A partition can only stay where it is, so a reassignment that may be is done at once, and none
is ever under way: there is nothing to list or to cancel. The number of replicas cannot change
either, so that nothing follows from forbidding it (KIP-860). Source: Kafka 4.0
ReplicationControlManager.alterPartitionReassignment; KIP-455.
"""

from __future__ import annotations

from collections.abc import Sequence

from plog.errors import (
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
    """Raise the KafkaError a client sees unless the partition can be, and is, held by `replicas`.

    No `replicas` ask for an end to a reassignment that is under way.
    """
    if topic is None or not 0 <= number < len(topic.partitions):
        raise UnknownTopicOrPartition(f"there is no partition {number} of such a topic")
    state = topic.partitions[number]
    if replicas is None:
        raise NoReassignmentInProgress(f"{topic.name}-{number} is not being moved")
    check_replicas(number, replicas, brokers)
    assert tuple(replicas) == state.replicas, "one broker holds every partition"
