"""A broker that may have been replaced without knowing it rejects what would be lost (rule C3)."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.heartbeat import HeartbeatRequest
from plogd.apis.close_connection import CloseConnection
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster, error_of


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    """Three brokers with a topic of three replicas."""
    cluster = ZooKeeperCluster(3)
    cluster.create("t")
    return cluster


def led_by_another(cluster: ZooKeeperCluster) -> str:
    """Return a topic whose leader is not the controller."""
    for number in range(20):
        name = f"t{number}"
        cluster.create(name)
        if cluster.leader(name) != cluster.controller:
            return name
    raise AssertionError("all leaders are on the same broker")


def produce(cluster: ZooKeeperCluster, to: int, acks: int, name: str = "t") -> int:
    """Return the error code of a broker for a record."""
    asked = cluster.begin_produce(name, b"a", to=to, acks=acks)
    cluster.until(lambda: asked.is_done)
    return error_of(asked)


def heartbeat(cluster: ZooKeeperCluster, to: int) -> int:
    """Return the error code of a broker for an unknown member of the group g."""
    code: int = cluster.ask(to, HeartbeatRequest(group_id="g", member_id="m"), 4).error_code
    return code


def test_replaced_leader_rejects_records_before_it_learns_that(cluster: ZooKeeperCluster) -> None:
    name = led_by_another(cluster)
    old = cluster.leader(name)
    cluster.client(old).cut()
    cluster.advance(SESSION_TIMEOUT_MS / 2)
    assert produce(cluster, old, acks=1, name=name) == 0
    cluster.until(lambda: cluster.leader(name) != old)
    # The controller cannot inform a broker that is not registered.
    assert cluster.replica(old, name).leader == old
    assert produce(cluster, old, acks=1, name=name) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(CloseConnection, match=f"another broker may lead {name}-0"):
        cluster.begin_produce(name, b"a", to=old, acks=0).response()
    # acks=all waits for replicas that do not follow this broker any more.
    cluster.advance(1_000)
    assert produce(cluster, old, acks=-1, name=name) != 0
    assert cluster.produce(name, b"kept") == 0
    cluster.client(old).restore()
    cluster.advance(30_000)
    assert sorted(cluster.state(name).isr) == [1, 2, 3]
    assert b"kept" in cluster.values(name)


def test_leader_without_other_replicas_in_sync_accepts_records() -> None:
    cluster = ZooKeeperCluster(2)
    cluster.create("t", replication_factor=2)
    leader = cluster.leader("t")
    cluster.stop(3 - leader)
    cluster.until(lambda: cluster.has_controller)
    assert cluster.state("t").isr == (leader,)
    cluster.zookeeper.lose_quorum()
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert produce(cluster, leader, acks=1) == 0


def test_leaders_and_coordinators_continue_when_zookeeper_returns(
    cluster: ZooKeeperCluster,
) -> None:
    assert cluster.commit("g", 7) == 0
    leader, coordinator = cluster.leader("t"), cluster.coordinator("g")
    assert heartbeat(cluster, coordinator) == ErrorCode.UNKNOWN_MEMBER_ID
    cluster.zookeeper.lose_quorum()
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert produce(cluster, leader, acks=1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(cluster, leader, acks=-1) == 0
    assert heartbeat(cluster, coordinator) == ErrorCode.NOT_COORDINATOR
    cluster.zookeeper.restore_quorum()
    cluster.advance(1_000)
    assert produce(cluster, leader, acks=1) == 0
    # Without being loaded again, because no other broker has been elected.
    assert heartbeat(cluster, coordinator) == ErrorCode.UNKNOWN_MEMBER_ID


def test_process_that_was_paused_knows_it_before_it_handles_a_request(
    cluster: ZooKeeperCluster,
) -> None:
    controller, leader = cluster.controller, cluster.leader("t")
    topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
    # No timer runs: the requests have arrived before anything else is noticed.
    clock = cluster.timers.clock
    clock.advance_to(clock.monotonic_ms() + 2 * SESSION_TIMEOUT_MS)
    created = cluster.brokers[controller].begin(CreateTopicsRequest(topics=[topic]), 7)
    assert created.response().topics[0].error_code == ErrorCode.NOT_CONTROLLER
    asked = cluster.begin_produce("t", b"a", to=leader, acks=1)
    assert error_of(asked) == ErrorCode.NOT_LEADER_OR_FOLLOWER
