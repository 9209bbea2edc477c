"""The leaders in Produce and Fetch responses (KIP-951)."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.helpers.sim.sim_broker import fetch_request, produce_request, records_of
from tests.helpers.sim.zookeeper_cluster import ZooKeeperCluster


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    """Three brokers with a topic of one replica per partition."""
    cluster = ZooKeeperCluster(3)
    cluster.create("t", partitions=3, replication_factor=1)
    return cluster


def other_than(cluster: ZooKeeperCluster, number: int = 0) -> int:
    return next(one for one in (1, 2, 3) if one != cluster.leader("t", number))


def nodes(response: Any) -> list[tuple[int, str, int]]:
    return [(one.node_id, one.host, one.port) for one in response.node_endpoints]


def node(cluster: ZooKeeperCluster, leader: int) -> tuple[int, str, int]:
    live = cluster.brokers[1].broker.cache.live_brokers[leader]
    [endpoint] = live.endpoints.values()
    return leader, endpoint.host, endpoint.port


def hint(partition: Any) -> tuple[int, int]:
    return partition.current_leader.leader_id, partition.current_leader.leader_epoch


def produce(cluster: ZooKeeperCluster, node_id: int, version: int = 10) -> ProduceResponse:
    request = produce_request("t", b"a")
    if version >= 13:
        topic = cluster.brokers[1].broker.cache.topic("t")
        assert topic is not None
        request.topic_data[0].name, request.topic_data[0].topic_id = "", topic.topic_id
    response = cluster.ask(node_id, request, version)
    assert isinstance(response, ProduceResponse)
    return response


@pytest.mark.parametrize("version", [10, 13])
def test_produce_response_names_the_leader(cluster: ZooKeeperCluster, version: int) -> None:
    leader = cluster.leader("t")
    response = produce(cluster, other_than(cluster), version)
    [one] = response.responses[0].partition_responses
    assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert hint(one) == (leader, cluster.state("t").leader_epoch)
    assert nodes(response) == [node(cluster, leader)]


def test_produce_response_of_earlier_versions_does_not_name_the_leader(
    cluster: ZooKeeperCluster,
) -> None:
    response = produce(cluster, other_than(cluster), 9)
    [one] = response.responses[0].partition_responses
    assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (hint(one), nodes(response)) == ((-1, -1), [])


def test_successful_responses_do_not_name_leaders(cluster: ZooKeeperCluster) -> None:
    response = produce(cluster, cluster.leader("t"))
    [one] = response.responses[0].partition_responses
    assert (one.error_code, hint(one), nodes(response)) == (0, (-1, -1), [])


@pytest.mark.parametrize("copies", [1, 200])
def test_leaders_of_several_partitions_are_named(cluster: ZooKeeperCluster, copies: int) -> None:
    """With 200 copies of each partition, the request is handled in slices."""
    asked = [
        PartitionProduceData(index=number % 3, records=records_of([b"a"]))
        for number in range(3 * copies)
    ]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=asked)]
    )
    response = cluster.ask(1, request, 10)
    leaders = {number: cluster.leader("t", number) for number in range(3)}
    for one in response.responses[0].partition_responses:
        leader = leaders[one.index]
        assert hint(one) == ((-1, -1) if leader == 1 else (leader, 0))
    expected = sorted(node(cluster, leader) for leader in {*leaders.values()} - {1})
    assert sorted(nodes(response)) == expected


def fetch(cluster: ZooKeeperCluster, node_id: int, version: int, epoch: int = -1) -> Any:
    request = fetch_request("t", current_leader_epoch=epoch)
    topic = cluster.brokers[1].broker.cache.topic("t")
    assert topic is not None
    if version >= 13:
        request.topics[0].topic, request.topics[0].topic_id = "", topic.topic_id
    return cluster.ask(node_id, request, version)


def test_fetch_response_names_the_leader(cluster: ZooKeeperCluster) -> None:
    leader = cluster.leader("t")
    response = fetch(cluster, other_than(cluster), 16)
    [one] = response.responses[0].partitions
    assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert hint(one) == (leader, 0)
    assert nodes(response) == [node(cluster, leader)]


def test_fetch_response_of_earlier_versions_does_not_name_the_leader(
    cluster: ZooKeeperCluster,
) -> None:
    response = fetch(cluster, other_than(cluster), 15)
    [one] = response.responses[0].partitions
    assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (hint(one), nodes(response)) == ((-1, -1), [])


def test_fetch_response_names_the_leader_and_its_epoch_to_clients_with_an_old_epoch() -> None:
    cluster = ZooKeeperCluster(3)
    cluster.create("t")
    cluster.stop(cluster.leader("t"))
    cluster.advance(1_000)
    state = cluster.state("t")
    for node_id in cluster.brokers:
        response = cluster.ask(node_id, fetch_request("t", current_leader_epoch=0), 12)
        [one] = response.responses[0].partitions
        assert one.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert hint(one) == (state.leader, state.leader_epoch)


def test_former_leader_that_does_not_know_the_next_names_no_leader(
    cluster: ZooKeeperCluster,
) -> None:
    leader = cluster.leader("t")
    cluster.zookeeper.expire(cluster.client(leader).session_id)
    cluster.until(lambda: cluster.replica(leader, "t").leader == -1)
    asked = cluster.brokers[leader].begin(produce_request("t", b"a"), 10)
    cluster.settle()
    response = asked.response()
    [one] = response.responses[0].partition_responses
    assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (hint(one), nodes(response)) == ((-1, -1), [])
