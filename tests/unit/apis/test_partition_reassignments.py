"""AlterPartitionReassignments and ListPartitionReassignments: requests and responses as frames."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from plog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.helpers.sim.sim_broker import SimBroker, create_topic


def make() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", 3)
    create_topic(broker, "u", 1)
    return broker


def alter(
    broker: SimBroker, *asked: tuple[str, int, list[int] | None], version: int = 1, **fields: Any
) -> Any:
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[ReassignablePartition(partition_index=number, replicas=replicas)],
        )
        for name, number, replicas in asked
    ]
    request = AlterPartitionReassignmentsRequest(topics=topics, **fields)
    answer = broker.ask(request, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    return answer


def codes(answer: Any) -> list[int]:
    ones = [one for topic in answer.responses for one in topic.partitions]
    assert all((one.error_message is None) == (not one.error_code) for one in ones)
    return [one.error_code for one in ones]


@pytest.mark.parametrize("version", [0, 1])
def test_assignment_to_the_current_broker_succeeds(version: int) -> None:
    broker = make()
    answer = alter(broker, ("t", 1, [1]), version=version)
    assert codes(answer) == [0]
    assert answer.responses[0].name == "t"
    assert broker.produce("t", b"a", partition=1).error_code == 0


def test_each_partition_has_its_own_outcome() -> None:
    answer = alter(
        make(),
        ("t", 0, [2]),
        ("t", 1, [1, 2]),
        ("t", 2, None),
        ("t", 3, [1]),
        ("u", 0, [1]),
        ("nobody", 0, None),
    )
    assert codes(answer) == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_partition_named_repeatedly_is_answered_once_by_its_last_element() -> None:
    assert codes(alter(make(), ("t", 0, [2]), ("u", 0, [1]), ("t", 0, [1]))) == [0, 0]


def test_replication_factor_flag_is_returned() -> None:
    broker = make()
    answer = alter(broker, ("t", 0, [1, 2]), allow_replication_factor_change=False)
    assert codes(answer) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert not answer.allow_replication_factor_change
    assert codes(alter(broker, ("t", 0, [1]), allow_replication_factor_change=False)) == [0]


@pytest.mark.parametrize(
    "topics", [None, [], [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 9])]]
)
def test_no_reassignment_is_ever_in_progress(topics: Any) -> None:
    broker = make()
    alter(broker, ("t", 0, [1]))
    answer = broker.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
    assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])
