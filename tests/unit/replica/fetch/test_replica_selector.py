"""Reads from followers (KIP-392): the choice of the replica, and what followers return."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.fetch import FetchRequest, FetchTopic, PartitionData
from plogd.config.replication_settings import RACK_AWARE_REPLICA_SELECTOR
from plogd.metadata.cache import LiveBroker
from plogd.metadata.store import Endpoint
from plogd.replica.fetch.replica_selector import RackAwareReplicaSelector
from tests.helpers.sim.sim_broker import Asked, fetch_request
from tests.helpers.sim.sim_replicas import SimReplicas
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster

RACKS = {1: "r1", 2: "r2", 3: "r3"}


def make(**settings: Any) -> ZooKeeperCluster:
    """Return a cluster with two records in a topic of three replicas, each in a rack of its own."""
    settings = {"replica_selector_class": RACK_AWARE_REPLICA_SELECTOR} | settings
    cluster = ZooKeeperCluster(3, racks=RACKS, **settings)
    cluster.create("t")
    assert cluster.produce("t", b"a") == cluster.produce("t", b"b") == 0
    # Until the followers know the high watermark.
    cluster.advance(1_000)
    return cluster


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    return make()


def follower_of(cluster: ZooKeeperCluster) -> int:
    return next(one for one in sorted(cluster.brokers) if one != cluster.leader("t"))


def begin(
    cluster: ZooKeeperCluster, node_id: int, offset: int = 0, *, version: int = 11, **fields: Any
) -> Asked:
    return cluster.brokers[node_id].begin(fetch_request("t", offset, **fields), version)


def data_of(asked: Asked) -> PartitionData:
    [topic] = asked.response().responses
    [data] = topic.partitions
    assert isinstance(data, PartitionData)
    return data


def fetch(cluster: ZooKeeperCluster, node_id: int, offset: int = 0, **fields: Any) -> PartitionData:
    asked = begin(cluster, node_id, offset, **fields)
    cluster.until(lambda: asked.is_done)
    return data_of(asked)


# -- the leader's choice --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [11, 12])
def test_leader_names_the_follower_in_the_rack_of_the_consumer(
    cluster: ZooKeeperCluster, version: int
) -> None:
    leader, follower = cluster.leader("t"), follower_of(cluster)
    data = fetch(cluster, leader, rack_id=RACKS[follower], version=version)
    assert (data.error_code, data.preferred_read_replica) == (0, follower)
    assert (data.high_watermark, data.log_start_offset, data.records) == (2, 0, b"")
    data = fetch(cluster, follower, rack_id=RACKS[follower], version=version)
    assert (data.error_code, data.preferred_read_replica, data.high_watermark) == (0, -1, 2)
    assert b"a" in bytes(data.records or b"")


@pytest.mark.parametrize("rack", ["", "elsewhere", None])
def test_leader_serves_consumers_of_other_racks(
    cluster: ZooKeeperCluster, rack: str | None
) -> None:
    leader = cluster.leader("t")
    data = fetch(cluster, leader, rack_id=RACKS[leader] if rack is None else rack)
    assert data.preferred_read_replica == -1
    assert data.records


def test_response_of_the_leader_does_not_wait_for_records(cluster: ZooKeeperCluster) -> None:
    follower = follower_of(cluster)
    asked = begin(cluster, cluster.leader("t"), 2, rack_id=RACKS[follower], max_wait_ms=10_000)
    cluster.settle()
    assert data_of(asked).preferred_read_replica == follower


def test_leader_names_a_follower_in_an_incremental_fetch(cluster: ZooKeeperCluster) -> None:
    follower, broker = follower_of(cluster), cluster.brokers[cluster.leader("t")]
    full = fetch_request("t", 2, session_epoch=0)
    session_id = broker.ask(full, 11).session_id
    assert session_id
    unchanged = FetchRequest(
        session_id=session_id, session_epoch=1, max_wait_ms=0, rack_id=RACKS[follower]
    )
    [topic] = broker.ask(unchanged, 11).responses
    assert topic.partitions[0].preferred_read_replica == follower


def test_fetch_of_a_follower_is_not_redirected(cluster: ZooKeeperCluster) -> None:
    leader, follower = cluster.leader("t"), follower_of(cluster)
    data = fetch(cluster, leader, replica_id=follower, rack_id=RACKS[follower])
    assert (data.error_code, data.preferred_read_replica) == (0, -1)
    assert data.records


def test_leader_serves_consumers_with_the_default_selector() -> None:
    cluster = make(replica_selector_class="")
    data = fetch(cluster, cluster.leader("t"), rack_id=RACKS[follower_of(cluster)])
    assert data.preferred_read_replica == -1
    assert data.records


def test_follower_outside_the_isr_is_not_chosen(cluster: ZooKeeperCluster) -> None:
    follower = follower_of(cluster)
    cluster.kill(follower)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    data = fetch(cluster, cluster.leader("t"), rack_id=RACKS[follower])
    assert data.preferred_read_replica == -1
    assert data.records


def test_leader_checks_the_epoch_before_it_names_a_follower(cluster: ZooKeeperCluster) -> None:
    follower = follower_of(cluster)
    epoch = cluster.state("t").leader_epoch + 1
    data = fetch(cluster, cluster.leader("t"), rack_id=RACKS[follower], current_leader_epoch=epoch)
    assert (data.error_code, data.preferred_read_replica) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)


def broker(node_id: int, rack: str | None, *listeners: str) -> LiveBroker:
    endpoints = {
        name: Endpoint(name=name, host=f"b{node_id}", port=9092, security_protocol="PLAINTEXT")
        for name in listeners or ("PLAINTEXT",)
    }
    return LiveBroker(broker_id=node_id, endpoints=endpoints, rack=rack)


def choose(replicas: SimReplicas, *brokers: LiveBroker, offset: int = 0, rack: str = "a") -> int:
    live = {one.broker_id: one for one in brokers}
    selector = RackAwareReplicaSelector(lambda: live)
    return selector.select(replicas.leader, offset, rack, "PLAINTEXT")


def test_most_caught_up_follower_is_chosen() -> None:
    replicas = SimReplicas(3)
    replicas.elect(1)
    replicas.produce(b"a")
    replicas.advance(1_000)
    brokers = [broker(1, "b"), broker(2, "a"), broker(3, "a")]
    assert choose(replicas, *brokers) == 3
    replicas.cut(3, 1)
    replicas.produce(b"b")
    replicas.advance(1_000)
    assert replicas.end_offsets == {1: 2, 2: 2, 3: 1}
    assert choose(replicas, *brokers) == 2
    assert choose(replicas, *brokers, offset=2) == 2
    # Only the follower that has not fetched the offset is in the rack.
    assert choose(replicas, broker(1, "b"), broker(2, "b"), broker(3, "a"), offset=2) == 1


def test_live_follower_that_has_left_the_isr_is_not_chosen() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    replicas.produce(b"a")
    replicas.advance(1_000)
    assert choose(replicas, broker(1, "b"), broker(2, "a")) == 2
    replicas.cut(2, 1)
    replicas.produce(b"b")
    replicas.advance(60_000)
    replicas.leader.check_isr()
    replicas.confirm()
    assert replicas.leader.isr == (1,)
    # It has the offset, but may never get the next ones.
    assert choose(replicas, broker(1, "b"), broker(2, "a")) == 1


def test_leader_in_the_rack_is_preferred() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    replicas.advance(1_000)
    assert choose(replicas, broker(1, "a"), broker(2, "a")) == 1


@pytest.mark.parametrize(
    "others", [[], [broker(2, "b")], [broker(2, None)], [broker(2, "a", "INTERNAL")]]
)
def test_followers_that_the_consumer_cannot_use_are_not_chosen(others: list[LiveBroker]) -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    replicas.advance(1_000)
    assert choose(replicas, broker(1, "b"), *others) == 1
    assert choose(replicas, broker(1, "b"), broker(2, "a")) == 2


# -- followers ------------------------------------------------------------------------------------


def test_follower_rejects_clients_that_do_not_expect_its_response(
    cluster: ZooKeeperCluster,
) -> None:
    data = fetch(cluster, follower_of(cluster), version=10)
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_reach_a_consumer_at_a_follower_without_delay(cluster: ZooKeeperCluster) -> None:
    follower = follower_of(cluster)
    asked = begin(cluster, follower, 2, rack_id=RACKS[follower], max_wait_ms=10_000)
    cluster.settle()
    assert not asked.is_done
    assert cluster.produce("t", b"c") == 0
    # Far below replica.fetch.wait.max.ms: the leader does not wait for more records before it sends
    # the high watermark.
    cluster.until(lambda: asked.is_done, within_ms=50)
    data = data_of(asked)
    assert (data.high_watermark, b"c" in bytes(data.records or b"")) == (3, True)


def test_follower_that_lacks_an_offset_reports_it(cluster: ZooKeeperCluster) -> None:
    leader, follower = cluster.leader("t"), follower_of(cluster)
    cluster.cut(follower, leader)
    asked = cluster.begin_produce("t", b"c", acks=1)
    cluster.until(lambda: asked.is_done)
    data = fetch(cluster, follower, 3)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_follower_serves_records_only_below_its_high_watermark() -> None:
    # Without a selector, followers learn the high watermark with the next records.
    cluster = make(replica_selector_class="", replica_fetch_wait_max_ms=5_000)
    follower = follower_of(cluster)
    cluster.advance(10_000)
    assert cluster.produce("t", b"c") == 0
    replica = cluster.replica(follower, "t")
    assert (replica.log.log_end_offset, replica.high_watermark) == (3, 2)
    data = fetch(cluster, follower, 2)
    assert (data.error_code, data.records) == (0, b"")
    # The consumer is ahead of the high watermark, but not of the log.
    asked = begin(cluster, follower, 3, max_wait_ms=10_000)
    replica.context.on_progress(replica)
    cluster.settle()
    assert not asked.is_done
    assert cluster.produce("t", b"d") == 0
    cluster.until(lambda: asked.is_done)
    assert b"d" in bytes(data_of(asked).records or b"")


@pytest.mark.parametrize(
    ("difference", "error"),
    [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_follower_checks_the_leader_epoch(
    cluster: ZooKeeperCluster, difference: int, error: ErrorCode
) -> None:
    cluster.stop(cluster.leader("t"))
    cluster.advance(1_000)
    epoch = cluster.state("t").leader_epoch
    assert epoch > 0
    data = fetch(cluster, follower_of(cluster), current_leader_epoch=epoch + difference)
    assert data.error_code == error
    assert fetch(cluster, follower_of(cluster), current_leader_epoch=epoch).records


def test_consumer_that_waits_at_a_follower_learns_about_a_new_leader(
    cluster: ZooKeeperCluster,
) -> None:
    leader, follower = cluster.leader("t"), follower_of(cluster)
    epoch = cluster.state("t").leader_epoch
    asked = begin(cluster, follower, 2, current_leader_epoch=epoch, max_wait_ms=600_000)
    cluster.stop(leader)
    cluster.until(lambda: asked.is_done)
    assert data_of(asked).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_consumer_can_continue_at_a_follower_whose_broker_has_lost_its_session(
    cluster: ZooKeeperCluster,
) -> None:
    follower = follower_of(cluster)
    cluster.client(follower).cut()
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    data = fetch(cluster, follower)
    assert (data.error_code, b"a" in bytes(data.records or b"")) == (0, True)


def test_follower_rejects_a_topic_that_does_not_exist(cluster: ZooKeeperCluster) -> None:
    request = fetch_request("t")
    request.topics = [FetchTopic(topic="u", partitions=request.topics[0].partitions)]
    asked = cluster.brokers[follower_of(cluster)].begin(request, 11)
    cluster.until(lambda: asked.is_done)
    assert data_of(asked).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
