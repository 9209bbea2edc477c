"""Reassignments with a single broker: only to the current replica."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plog.errors import (
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from plogd.controller.partition_creation import first_state
from plogd.controller.reassignments import check_reassignment
from plogd.metadata.cache import TopicState

TOPIC = TopicState(
    name="t", topic_id=b"t" * 16, partitions=(first_state(0, (1,)), first_state(1, (1,)))
)


def check(
    number: int,
    replicas: Sequence[int] | None,
    *,
    topic: TopicState | None = TOPIC,
) -> None:
    check_reassignment(topic, number, replicas, brokers=(1,))


def test_reassignment_to_the_current_broker_succeeds() -> None:
    check(1, [1])


@pytest.mark.parametrize(
    ("number", "replicas", "error"),
    [
        (2, [1], UnknownTopicOrPartition),
        (-1, [1], UnknownTopicOrPartition),
        (0, None, NoReassignmentInProgress),
        (9, None, UnknownTopicOrPartition),
        (0, [2], InvalidReplicaAssignment),
        (0, [1, 2], InvalidReplicaAssignment),
        (0, [1, 1], InvalidReplicaAssignment),
        (0, [-1], InvalidReplicaAssignment),
        (0, [], InvalidReplicaAssignment),
    ],
)
def test_other_reassignments_are_refused(
    number: int, replicas: list[int] | None, error: type[KafkaError]
) -> None:
    with pytest.raises(error):
        check(number, replicas)


def test_unknown_topic_has_no_partitions() -> None:
    with pytest.raises(UnknownTopicOrPartition):
        check(0, [1], topic=None)
