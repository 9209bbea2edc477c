"""Requests go to the right brokers, and failed items are retried."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plog.client.admin.results import Results
from plog.client.admin.routing import ask_coordinator, by_broker, by_coordinator, by_leader
from plog.client.errors import ConnectionFailed
from plog.client.network.socket_network import run_blocking
from plog.errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    KafkaError,
    LeaderNotAvailable,
    NotCoordinator,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from plog.types import TopicPartition
from tests.helpers.client.fake_cluster import FakeCluster

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Leaders:
    """Leaders that respond with each of `errors` once, and then with their node id."""

    def __init__(self, cluster: FakeCluster, *errors: KafkaError) -> None:
        self.cluster = cluster
        self.errors = list(errors)
        self.asked: list[tuple[int, list[TopicPartition]]] = []

    async def _ask(
        self, node_id: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError]:
        self.asked.append((node_id, list(partitions)))
        if self.errors:
            return {partition: self.errors.pop(0) for partition in partitions}
        return dict.fromkeys(partitions, node_id)

    def run(self, *partitions: TopicPartition) -> Results[TopicPartition, int]:
        return run_blocking(by_leader(self.cluster.as_cluster(), partitions, self._ask))


def test_each_leader_gets_one_request_for_its_partitions() -> None:
    leaders = Leaders(FakeCluster(leaders={A0: 1, A1: 2, B0: 1}))
    assert leaders.run(A0, A1, B0) == {A0: 1, A1: 2, B0: 1}
    assert leaders.asked == [(1, [A0, B0]), (2, [A1])]
    assert leaders.cluster.network.time_s == 0


def test_moved_leader_is_found_and_only_its_partitions_are_retried() -> None:
    cluster = FakeCluster(leaders={A0: 1, A1: 2})
    leaders = Leaders(cluster, NotLeaderOrFollower())
    original = cluster.refresh

    async def moved(topics: Sequence[str]) -> object:
        if cluster.refreshed:
            cluster.leaders[A0] = 3
        return await original(topics)

    cluster.refresh = moved  # type: ignore[assignment, method-assign]
    assert leaders.run(A0, A1) == {A0: 3, A1: 2}
    assert leaders.asked == [(1, [A0]), (2, [A1]), (3, [A0])]


def test_unreachable_leader_is_retried() -> None:
    cluster = FakeCluster(leaders={A0: 1})
    asked = []

    async def ask(node_id: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        asked.append(node_id)
        if len(asked) < 3:
            raise ConnectionFailed("refused")
        return dict.fromkeys(partitions, 7)

    assert run_blocking(by_leader(cluster.as_cluster(), [A0], ask)) == {A0: 7}
    assert asked == [1, 1, 1]
    assert cluster.network.time_s == pytest.approx(0.3)


def test_permanent_error_is_the_outcome_of_its_partition() -> None:
    leaders = Leaders(FakeCluster(leaders={A0: 1, A1: 2}), TopicAuthorizationFailed())
    results = leaders.run(A0, A1)
    assert isinstance(results[A0], TopicAuthorizationFailed)
    assert results[A1] == 2
    assert len(leaders.asked) == 2


def test_unknown_topic_fails_within_a_second() -> None:
    leaders = Leaders(FakeCluster(leaders={A0: 1}))
    results = leaders.run(A0, B0)
    assert results[A0] == 1
    with pytest.raises(UnknownTopicOrPartition, match="topic b does not exist"):
        results.get(B0)
    assert leaders.cluster.network.time_s < 1
    assert len(leaders.cluster.refreshed) == 4


def test_missing_partition_error_differs_from_missing_topic() -> None:
    leaders = Leaders(FakeCluster(leaders={A0: 1}))
    with pytest.raises(
        UnknownTopicOrPartition, match="partition 1 does not exist: topic a has 1 partitions"
    ):
        leaders.run(A1).get(A1)


def test_partition_without_leader_is_retried_until_the_deadline() -> None:
    leaders = Leaders(FakeCluster(leaders={A0: -1}))
    with pytest.raises(LeaderNotAvailable, match="a-0 has no leader"):
        leaders.run(A0).get(A0)
    assert leaders.cluster.network.time_s == pytest.approx(60.0)


def test_item_missing_from_the_response_has_an_error() -> None:
    async def ask(node_id: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {A0: 5}

    cluster = FakeCluster(leaders={A0: 1, A1: 1})
    results = run_blocking(by_leader(cluster.as_cluster(), [A0, A1], ask))
    assert results[A0] == 5
    with pytest.raises(KafkaError, match="has no result for a-1"):
        results.get(A1)


def test_each_coordinator_gets_one_request_for_its_groups() -> None:
    cluster = FakeCluster(coordinators={"g": 1, "h": 2, "i": 1})
    asked = []

    async def ask(node_id: int, groups: Sequence[str]) -> dict[str, int]:
        asked.append((node_id, list(groups)))
        return dict.fromkeys(groups, node_id)

    results = run_blocking(by_coordinator(cluster.as_cluster(), ["g", "h", "i"], ask))
    assert results == {"g": 1, "h": 2, "i": 1}
    assert asked == [(1, ["g", "i"]), (2, ["h"])]


@pytest.mark.parametrize(
    ("error", "forgotten"),
    [(NotCoordinator(), ["g"]), (ConnectionFailed(), ["g"]), (CoordinatorLoadInProgress(), [])],
)
def test_moved_coordinator_is_looked_up_again(error: KafkaError, forgotten: list[str]) -> None:
    cluster = FakeCluster(coordinators={"g": 1})
    errors = [error]

    async def ask(node_id: int) -> str:
        if errors:
            raise errors.pop()
        return "described"

    assert run_blocking(ask_coordinator(cluster.as_cluster(), "g", ask)) == "described"
    assert cluster.forgotten == forgotten


def test_permanent_group_error_is_raised_immediately() -> None:
    cluster = FakeCluster(coordinators={"g": 1})

    async def ask(node_id: int) -> str:
        raise GroupIdNotFound("no g")

    with pytest.raises(GroupIdNotFound, match="no g"):
        run_blocking(ask_coordinator(cluster.as_cluster(), "g", ask))
    assert cluster.network.time_s == 0


def test_failing_broker_does_not_affect_other_brokers() -> None:
    cluster = FakeCluster(brokers=(1, 2))

    async def ask(node_id: int) -> str:
        if node_id == 1:
            raise ConnectionFailed("refused")
        return "here"

    results = run_blocking(by_broker(cluster.as_cluster(), None, ask))
    assert results[2] == "here"
    assert isinstance(results[1], ConnectionFailed)
    assert cluster.network.time_s == pytest.approx(60.0)
