"""Partitions whose replica on a broker is not in sync, for rolling restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plog.types import TopicPartition
from plog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.helpers.sim.sim_ports import outcome
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster

KEY = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    """Three brokers with a topic of three replicas and a topic of one replica per partition."""
    cluster = ZooKeeperCluster(3)
    cluster.create_away_from_controller("t")
    cluster.create("u", partitions=300, replication_factor=1)
    cluster.advance(1_000)
    return cluster


def found(cluster: ZooKeeperCluster, node_id: int) -> list[TopicPartition]:
    broker = cluster.brokers[node_id].broker
    assert broker.cluster_replicas is not None
    finding = broker.cluster_replicas.out_of_sync()
    cluster.until(lambda: finding.done)
    return outcome(finding)


def test_replica_that_falls_behind_is_found_until_it_has_caught_up(
    cluster: ZooKeeperCluster,
) -> None:
    leader = cluster.leader("t")
    follower = next(one for one in (1, 2, 3) if one not in (leader, cluster.controller))
    assert [found(cluster, one) for one in (1, 2, 3)] == [[], [], []]
    cluster.cut(leader, follower)
    assert cluster.produce("t", b"a", acks=1) == 0
    cluster.until(lambda: found(cluster, follower) == [KEY])
    assert found(cluster, leader) == []
    cluster.heal(leader, follower)
    cluster.until(lambda: found(cluster, follower) == [])
    assert follower in cluster.state("t").isr


def test_partitions_of_a_broker_that_has_just_started_are_not_in_sync(
    cluster: ZooKeeperCluster,
) -> None:
    leader, controller = cluster.leader("t"), cluster.controller
    follower = next(one for one in (1, 2, 3) if one not in (leader, controller))
    cluster.stop(follower)
    cluster.cut(controller, follower)
    cluster.start(follower)
    # As if the metadata in ZooKeeper were from before the restart.
    cache = cluster.brokers[follower].broker.cache
    topic = cache.topic("t")
    assert topic is not None
    cache.update(replace(topic, partitions=(replace(topic.partitions[0], isr=(1, 2, 3)),)))
    assert KEY in found(cluster, follower)
    cluster.heal(controller, follower)
    cluster.until(lambda: found(cluster, follower) == [])


@pytest.mark.parametrize("change", [{"isr": (9,)}, {"leader_epoch": 9}])
def test_state_from_the_controller_counts(
    cluster: ZooKeeperCluster, change: dict[str, Any]
) -> None:
    """The replica has left the ISR, or has not taken its present role yet."""
    for sim in cluster.brokers.values():
        topic = sim.broker.cache.topic("t")
        assert topic is not None
        state = replace(topic.partitions[0], **change)
        sim.broker.cache.update(replace(topic, partitions=(state,)))
    assert [found(cluster, one) for one in (1, 2, 3)] == [[KEY]] * 3


def test_follower_that_cannot_fetch_is_not_in_sync(cluster: ZooKeeperCluster) -> None:
    leader, controller = cluster.leader("t"), cluster.controller
    follower = next(one for one in (1, 2, 3) if one not in (leader, controller))
    # The controller cannot send the follower what the ISR is.
    cluster.cut(controller, follower)
    cluster.kill(leader)
    cluster.until(lambda: KEY in found(cluster, follower))
    cache = cluster.brokers[follower].broker.cache
    topic = cache.topic("t")
    assert topic is not None
    assert follower in topic.partitions[0].isr


def test_search_is_divided_into_slices(cluster: ZooKeeperCluster) -> None:
    broker = cluster.brokers[1].broker
    assert broker.cluster_replicas is not None
    assert not broker.cluster_replicas.out_of_sync().done


def test_partition_in_a_failed_log_directory_is_not_in_sync(cluster: ZooKeeperCluster) -> None:
    cluster.replica(1, "t").log.offline = True
    assert found(cluster, 1) == [KEY]
    assert found(cluster, 2) == []


def test_broker_that_returns_is_in_sync_again(cluster: ZooKeeperCluster) -> None:
    cluster.kill(2)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert cluster.produce("t", b"a") == 0
    cluster.start(2)
    cluster.until(lambda: found(cluster, 2) == [])
    assert cluster.replica(2, "t").log.log_end_offset == 1


def test_replica_that_a_reassignment_adds_is_not_expected_to_be_in_sync() -> None:
    cluster = ZooKeeperCluster(4)
    leader, follower = cluster.create_away_from_controller("t")
    old = [leader, follower, cluster.controller]
    added = next(one for one in cluster.brokers if one not in old)
    assert cluster.produce("t", b"a") == 0
    cluster.cut(leader, added)
    moved = ReassignablePartition(partition_index=0, replicas=[*old, added])
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[moved])], timeout_ms=10_000
    )
    [topic] = cluster.ask_controller(request, 0).responses
    assert topic.partitions[0].error_code == 0
    cluster.until(lambda: KEY in cluster.brokers[added].broker.replica_manager.topics.partitions)
    cluster.advance(1_000)
    assert added not in cluster.state("t").isr
    assert [found(cluster, one) for one in (leader, added)] == [[], []]
    text = cluster.brokers[leader].metrics.expose().decode().splitlines()
    assert "kafka_server_replicamanager_underreplicatedpartitions 0" in text
    assert 'kafka_cluster_partition_underreplicated{topic="t",partition="0"} 0' in text
