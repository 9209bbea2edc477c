"""Batches of idempotent producers stay in order while the leader or the ISR changes."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster, error_of


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    """Three brokers with a topic of three replicas, of which two must be in sync."""
    cluster = ZooKeeperCluster(3, min_insync_replicas=2)
    cluster.create("t")
    return cluster


def send(cluster: ZooKeeperCluster, to: int, sequence: int) -> int:
    """Send one record of a producer to a broker; return the error code."""
    asked = cluster.begin_produce(
        "t", b"%d" % sequence, to=to, producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    cluster.until(lambda: asked.is_done)
    return error_of(asked)


def assert_first_batch_is_required(cluster: ZooKeeperCluster) -> None:
    """Check that the second batch, which was already on its way, is not appended before it."""
    leader = cluster.leader("t")
    assert send(cluster, leader, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send(cluster, leader, sequence) for sequence in (0, 1)] == [0, 0]
    assert cluster.values("t") == [b"0", b"1"]


def test_later_batch_waits_for_the_first_one_that_a_future_leader_has_rejected(
    cluster: ZooKeeperCluster,
) -> None:
    old = cluster.leader("t")
    for one in (1, 2, 3):
        if one != old:
            assert send(cluster, one, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.kill(old)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert_first_batch_is_required(cluster)


def test_later_batch_waits_for_the_first_one_that_lacked_replicas(
    cluster: ZooKeeperCluster,
) -> None:
    leader = cluster.leader("t")
    others = [one for one in (1, 2, 3) if one != leader]
    for one in others:
        cluster.kill(one)
    cluster.until(lambda: cluster.has_controller and len(cluster.state("t").isr) == 1)
    cluster.advance(1_000)
    assert send(cluster, leader, 0) == ErrorCode.NOT_ENOUGH_REPLICAS
    for one in others:
        cluster.start(one)
    cluster.until(lambda: len(cluster.state("t").isr) == 3)
    cluster.advance(1_000)
    assert_first_batch_is_required(cluster)


def test_rejected_batch_is_forgotten_when_the_producer_has_written_to_the_leader(
    cluster: ZooKeeperCluster,
) -> None:
    old = cluster.leader("t")
    for one in (1, 2, 3):
        if one != old:
            assert send(cluster, one, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [send(cluster, old, sequence) for sequence in (0, 1)] == [0, 0]
    cluster.advance(1_000)
    cluster.kill(old)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert send(cluster, cluster.leader("t"), 2) == 0
