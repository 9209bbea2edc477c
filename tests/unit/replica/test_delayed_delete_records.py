"""DeleteRecords in a cluster: the response waits for all live replicas."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.helpers.sim.sim_broker import Asked
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    """Three brokers with three records in a topic of three replicas."""
    cluster = ZooKeeperCluster(3)
    cluster.create("t")
    for value in (b"a", b"b", b"c"):
        assert cluster.produce("t", value) == 0
    cluster.advance(1_000)
    return cluster


def begin(
    cluster: ZooKeeperCluster, offset: int = 2, timeout_ms: int = 30_000, topic: str = "t"
) -> Asked:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=timeout_ms
    )
    return cluster.brokers[cluster.leader(topic)].begin(request, 2)


def result(cluster: ZooKeeperCluster, asked: Asked) -> tuple[int, int]:
    """Return the low watermark and the error code of a deletion."""
    cluster.until(lambda: asked.is_done)
    [one] = asked.response().topics[0].partitions
    assert isinstance(one, DeleteRecordsPartitionResult)
    return one.low_watermark, one.error_code


def starts(cluster: ZooKeeperCluster) -> dict[int, int]:
    return {one: cluster.replica(one, "t").log.log_start_offset for one in cluster.brokers}


def followers(cluster: ZooKeeperCluster) -> list[int]:
    return [one for one in sorted(cluster.brokers) if one != cluster.leader("t")]


@pytest.mark.parametrize(("offset", "start"), [(2, 2), (-1, 3)])
def test_response_is_sent_when_all_replicas_have_deleted_the_records(
    cluster: ZooKeeperCluster, offset: int, start: int
) -> None:
    asked = begin(cluster, offset)
    cluster.settle()
    assert not asked.is_done
    # With the next two fetches of the followers, not at the end of the request's timeout.
    cluster.until(lambda: asked.is_done, within_ms=2_000)
    assert result(cluster, asked) == (start, 0)
    assert starts(cluster) == {1: start, 2: start, 3: start}


def test_deletion_of_deleted_records_does_not_wait(cluster: ZooKeeperCluster) -> None:
    assert result(cluster, begin(cluster)) == (2, 0)
    asked = begin(cluster, 1)
    cluster.settle()
    assert result(cluster, asked) == (2, 0)


def test_response_waits_for_a_follower_that_cannot_fetch(cluster: ZooKeeperCluster) -> None:
    leader, follower = cluster.leader("t"), followers(cluster)[0]
    cluster.cut(leader, follower)
    asked = begin(cluster)
    cluster.advance(10_000)
    assert not asked.is_done
    assert starts(cluster)[follower] == 0
    cluster.heal(leader, follower)
    assert result(cluster, asked) == (2, 0)
    assert starts(cluster) == {1: 2, 2: 2, 3: 2}


def test_request_times_out_while_a_follower_has_the_records(cluster: ZooKeeperCluster) -> None:
    leader, follower = cluster.leader("t"), followers(cluster)[0]
    cluster.cut(leader, follower)
    asked = begin(cluster, timeout_ms=5_000)
    began_ms = cluster.timers.clock.monotonic_ms()
    assert result(cluster, asked) == (-1, ErrorCode.REQUEST_TIMED_OUT)
    assert 5_000 <= cluster.timers.clock.monotonic_ms() - began_ms < 10_000
    # The records are deleted nevertheless.
    assert starts(cluster)[leader] == 2
    cluster.heal(leader, follower)
    cluster.advance(5_000)
    assert starts(cluster) == {1: 2, 2: 2, 3: 2}


def test_dead_replicas_are_not_waited_for(cluster: ZooKeeperCluster) -> None:
    # One is dead before, the other dies during the wait.
    first, second = followers(cluster)
    cluster.kill(first)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    cluster.cut(cluster.leader("t"), second)
    asked = begin(cluster, timeout_ms=60_000)
    cluster.advance(1_000)
    assert not asked.is_done
    cluster.kill(second)
    began_ms = cluster.timers.clock.monotonic_ms()
    assert result(cluster, asked) == (2, 0)
    assert cluster.timers.clock.monotonic_ms() - began_ms < 2 * SESSION_TIMEOUT_MS


def test_dead_replica_outside_the_isr_is_not_waited_for(cluster: ZooKeeperCluster) -> None:
    leader, follower = cluster.create_away_from_controller("u")
    assert cluster.produce("u", b"a") == 0
    cluster.cut(leader, follower)
    assert cluster.produce("u", b"b", acks=1) == 0
    cluster.until(lambda: follower not in cluster.state("u").isr)
    asked = begin(cluster, 1, timeout_ms=60_000, topic="u")
    cluster.advance(1_000)
    assert not asked.is_done
    cluster.kill(follower)
    began_ms = cluster.timers.clock.monotonic_ms()
    assert result(cluster, asked) == (1, 0)
    assert cluster.timers.clock.monotonic_ms() - began_ms < 2 * SESSION_TIMEOUT_MS


def test_deletion_fails_when_another_broker_becomes_the_leader(cluster: ZooKeeperCluster) -> None:
    leader, follower = cluster.leader("t"), followers(cluster)[0]
    cluster.cut(leader, follower)
    asked = begin(cluster, timeout_ms=60_000)
    cluster.advance(1_000)
    cluster.zookeeper.expire(cluster.client(leader).session_id)
    assert result(cluster, asked) == (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_deletion_is_forgotten_when_its_client_disconnects(cluster: ZooKeeperCluster) -> None:
    leader, follower = cluster.leader("t"), followers(cluster)[0]
    cluster.cut(leader, follower)
    manager = cluster.brokers[leader].broker.replica_manager
    asked = begin(cluster)
    cluster.advance(100)
    assert len(manager.delayed_deletions) == 1
    asked.cancel()
    cluster.settle()
    assert len(manager.delayed_deletions) == 0
