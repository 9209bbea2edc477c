"""ElectLeaders: requests and responses as frames."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.helpers.sim.sim_broker import SimBroker, create_topic


def make(**settings: Any) -> SimBroker:
    broker = SimBroker(**settings).start()
    create_topic(broker, "t", 2)
    return broker


def some(*asked: tuple[str, list[int]], kind: int = 0) -> ElectLeadersRequest:
    topics = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in asked]
    return ElectLeadersRequest(election_type=kind, topic_partitions=topics)


def results(answer: Any) -> dict[tuple[str, int], int]:
    ones = [(x.topic, one) for x in answer.replica_election_results for one in x.partition_result]
    assert all(one.error_message for _, one in ones)
    return {(topic, one.partition_id): one.error_code for topic, one in ones}


@pytest.mark.parametrize(("version", "kind"), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_no_partition_needs_an_election(version: int, kind: int) -> None:
    answer = make().ask(some(("t", [0, 1]), kind=kind), version)
    assert answer.error_code == 0
    assert results(answer) == dict.fromkeys([("t", 0), ("t", 1)], ErrorCode.ELECTION_NOT_NEEDED)


def test_missing_partition_is_an_error() -> None:
    answer = make().ask(some(("t", [2, -1]), ("nobody", [0])), 2)
    assert set(results(answer).values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(results(answer)) == 3


@pytest.mark.parametrize("version", range(3))
def test_request_for_all_lists_only_partitions_that_need_an_election(version: int) -> None:
    answer = make().ask(ElectLeadersRequest(topic_partitions=None), version)
    assert (answer.error_code, results(answer)) == (0, {})


@pytest.mark.parametrize(
    ("kind", "code"),
    [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
)
def test_partition_of_failed_directory_has_no_eligible_leader(kind: int, code: int) -> None:
    broker = make()
    broker.broker.log_manager.storage_failed("/data", OSError(errno.EIO, "broken"))
    expected = {("t", 0): code, ("t", 1): code}
    assert results(broker.ask(some(("t", [0, 1]), kind=kind), 2)) == expected
    asked = ElectLeadersRequest(election_type=kind, topic_partitions=None)
    assert results(broker.ask(asked, 2)) == expected


@pytest.mark.parametrize("version", [1, 2])
def test_unknown_election_type_is_refused(version: int) -> None:
    answer = make().ask(some(("t", [0]), kind=7), version)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert results(answer) == {("t", 0): ErrorCode.INVALID_REQUEST}


def test_long_topic_name_is_not_repeated_for_each_partition() -> None:
    answer = make().ask(some(("x" * 30_000, list(range(1_000)))), 2)
    [topic] = answer.replica_election_results
    assert len(topic.partition_result) == 1_000
    assert all(len(one.error_message) < 100 for one in topic.partition_result)
