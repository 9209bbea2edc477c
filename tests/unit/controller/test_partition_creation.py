"""Validation and placement of new partitions of a topic."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    KafkaError,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from plogd.controller.partition_creation import (
    NewPartitions,
    first_state,
    partition_count_text,
    plan_partitions,
    with_partitions,
)
from plogd.controller.replica_placement import Assignments
from plogd.controller.topic_creation import MAX_PARTITIONS
from plogd.metadata.cache import TopicState


def topic(*replicas: tuple[int, ...], name: str = "t") -> TopicState:
    states = tuple(first_state(number, brokers) for number, brokers in enumerate(replicas))
    return TopicState(name=name, topic_id=b"t" * 16, partitions=states)


def plan(count: int, assignments: Any = None, brokers: tuple[int, ...] = (1,)) -> Assignments:
    asked = NewPartitions(topic="t", count=count, assignments=assignments)
    return plan_partitions(asked, topic((1,), (1,)), brokers)


def test_new_partitions_follow_existing_ones() -> None:
    assert plan(4) == {2: (1,), 3: (1,)}


def test_leaders_continue_round_robin() -> None:
    asked = NewPartitions(topic="t", count=5)
    placed = plan_partitions(asked, topic((1, 2), (2, 3)), (1, 2, 3))
    assert placed == {2: (3, 1), 3: (1, 3), 4: (2, 1)}


def test_leaders_continue_after_the_leader_of_partition_0() -> None:
    asked = NewPartitions(topic="t", count=3)
    assert plan_partitions(asked, topic((2,)), (1, 2, 3)) == {1: (3,), 2: (1,)}


def test_new_partitions_are_in_several_racks() -> None:
    asked = NewPartitions(topic="t", count=5)
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    placed = plan_partitions(asked, topic((1, 3)), (1, 2, 3, 4), racks)
    assert [{racks[one] for one in replicas} for replicas in placed.values()] == [{"a", "b"}] * 4


def test_manual_assignment_is_used() -> None:
    assert plan(4, [[2], [1]], brokers=(1, 2)) == {2: (2,), 3: (1,)}


@pytest.mark.parametrize(
    ("count", "assignments", "error"),
    [
        (2, None, InvalidPartitions),
        (1, None, InvalidPartitions),
        (0, None, InvalidPartitions),
        (-1, None, InvalidPartitions),
        (MAX_PARTITIONS + 1, None, PolicyViolation),
        (2**31 - 1, None, PolicyViolation),
        (4, [], InvalidReplicaAssignment),
        (4, [[1]], InvalidReplicaAssignment),
        (3, [[1], [1]], InvalidReplicaAssignment),
        (3, [[]], InvalidReplicaAssignment),
        (3, [[9]], InvalidReplicaAssignment),
        (3, [[1, 1]], InvalidReplicaAssignment),
    ],
)
def test_invalid_request_is_refused(count: int, assignments: Any, error: type[KafkaError]) -> None:
    with pytest.raises(error):
        plan(count, assignments)


def test_new_partitions_must_have_the_replication_factor_of_the_topic() -> None:
    with pytest.raises(InvalidReplicaAssignment, match="partition 2 is assigned 2"):
        plan(3, [[1, 2]], brokers=(1, 2))
    with pytest.raises(InvalidReplicationFactor):
        plan_partitions(NewPartitions(topic="t", count=2), topic((1, 2)), (1,))


def test_missing_topic_is_unknown() -> None:
    with pytest.raises(UnknownTopicOrPartition, match="'t'"):
        plan_partitions(NewPartitions(topic="t", count=2), None, (1,))


def test_internal_topics_cannot_be_expanded() -> None:
    name = "__consumer_offsets"
    with pytest.raises(InvalidRequest, match="internal"):
        plan_partitions(NewPartitions(topic=name, count=9), topic((1,), name=name), (1,))


def test_expanded_topic_keeps_its_id_and_partitions() -> None:
    old = topic((1,))
    new = with_partitions(old, (first_state(1, (1,)),))
    assert (new.name, new.topic_id, new.partitions[:1]) == (old.name, old.topic_id, old.partitions)
    assert [state.partition for state in new.partitions] == [0, 1]
    assert (new.partitions[1].leader, new.partitions[1].isr) == (1, (1,))


def test_partition_count_text_uses_singular_and_plural() -> None:
    assert [partition_count_text(number) for number in (0, 1, 2)] == [
        "0 partitions",
        "1 partition",
        "2 partitions",
    ]


def test_replicas_on_live_brokers_are_in_sync_at_first() -> None:
    state = first_state(0, (3, 1, 2), {1, 2})
    assert (state.leader, state.isr, state.replicas) == (1, (1, 2), (3, 1, 2))


def test_all_replicas_are_in_sync_at_first_if_none_is_live() -> None:
    for live in (None, frozenset[int]()):
        state = first_state(0, (3, 1), live)
        assert (state.leader, state.isr) == (3, (3, 1))
