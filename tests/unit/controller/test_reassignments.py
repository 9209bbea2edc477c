"""Requests to reassign partitions: which are valid, and how they begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from plog.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from plogd.controller.partition_creation import first_state
from plogd.controller.reassignments import plan_reassignment
from plogd.controller.replica_assignment import ReplicaAssignment
from plogd.metadata.cache import TopicState

MOVING = replace(first_state(1, (2, 3, 1)), adding_replicas=(3,), removing_replicas=(1,))
TOPIC = TopicState(name="t", topic_id=b"t" * 16, partitions=(first_state(0, (1, 2)), MOVING))


def plan(
    number: int, replicas: Sequence[int] | None, topic: TopicState | None = TOPIC, **more: Any
) -> ReplicaAssignment:
    return plan_reassignment(topic, number, replicas, brokers=(1, 2, 3), **more)


def test_present_assignment_is_the_result_if_nothing_changes() -> None:
    assert plan(0, [1, 2]) == ReplicaAssignment(replicas=(1, 2))
    assert plan(1, [2, 3]) == ReplicaAssignment.of(MOVING)


def test_partition_moves_to_live_brokers() -> None:
    assert plan(0, [2, 3]) == ReplicaAssignment(replicas=(2, 3, 1), adding=(3,), removing=(1,))


def test_cancellation_returns_to_the_origin() -> None:
    assert plan(1, None) == ReplicaAssignment(replicas=(2, 1))


def test_replica_that_stays_need_not_be_running() -> None:
    topic = replace(TOPIC, partitions=(first_state(0, (1, 9)),))
    assert plan(0, [9, 2], topic).target == (9, 2)


@pytest.mark.parametrize(
    ("number", "replicas", "error"),
    [
        (2, [1], UnknownTopicOrPartition),
        (-1, [1], UnknownTopicOrPartition),
        (0, None, NoReassignmentInProgress),
        (9, None, UnknownTopicOrPartition),
        (0, [4], InvalidReplicaAssignment),
        (0, [1, 1], InvalidReplicaAssignment),
        (0, [-1], InvalidReplicaAssignment),
        (0, [], InvalidReplicaAssignment),
    ],
)
def test_invalid_reassignments_are_refused(
    number: int, replicas: list[int] | None, error: type[KafkaError]
) -> None:
    with pytest.raises(error):
        plan(number, replicas)


def test_unknown_topic_has_no_partitions() -> None:
    with pytest.raises(UnknownTopicOrPartition):
        plan(0, [1], None)


def test_number_of_replicas_changes_only_if_the_request_allows_it() -> None:
    assert plan(0, [3, 2], may_change_factor=False).target == (3, 2)
    # The replicas of the origin count, not those of both assignments.
    assert plan(1, [1, 3], may_change_factor=False).target == (1, 3)
    for number in (0, 1):
        with pytest.raises(InvalidReplicationFactor, match="from 2 to 3"):
            plan(number, [1, 2, 3], may_change_factor=False)
