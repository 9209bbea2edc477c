"""Replication between the brokers of a cluster, with the test as the controller."""

from __future__ import annotations

from plog.errors import ErrorCode
from tests.helpers.sim.sim_cluster import SimCluster

LAG_MS = 30_000


def started(**settings: str) -> SimCluster:
    cluster = SimCluster(3)
    cluster.create("t", [1, 2, 3], **settings)
    return cluster


def test_acks_all_is_answered_when_all_replicas_have_the_records() -> None:
    cluster = started()
    asked = cluster.produce(b"a", b"b")
    cluster.settle()
    assert not asked.is_done
    cluster.advance(100)
    assert cluster.error_of(asked) == 0
    assert cluster.end_offsets() == {1: 2, 2: 2, 3: 2}
    cluster.advance(1000)
    assert cluster.high_watermarks() == {1: 2, 2: 2, 3: 2}
    assert cluster.records(1) == cluster.records(2) == cluster.records(3)


def test_follower_that_was_cut_off_leaves_the_isr_and_rejoins() -> None:
    cluster = started()
    cluster.cut(1, 3)
    asked = cluster.produce(b"a", timeout_ms=120_000)
    cluster.advance(LAG_MS)
    assert (cluster.high_watermarks()[1], cluster.partition(1).isr) == (0, (1, 2, 3))
    cluster.advance(LAG_MS)
    assert cluster.partition(1).isr == (1, 2)
    assert cluster.states["t", 0].isr == (1, 2)  # type: ignore[index]
    assert cluster.high_watermarks()[1] == 1
    assert cluster.error_of(asked) == 0
    cluster.heal(1, 3)
    cluster.advance(LAG_MS + 5000)
    assert sorted(cluster.partition(1).isr) == [1, 2, 3]
    assert cluster.records(3) == cluster.records(1)


def test_leader_moves_and_returns() -> None:
    cluster = started()
    expected = b""
    for leader, value in [(1, b"one"), (2, b"two"), (1, b"three"), (3, b"four")]:
        if cluster.states["t", 0].leader != leader:  # type: ignore[index]
            cluster.elect(leader)
        asked = cluster.produce(value)
        cluster.advance(2000)
        assert cluster.error_of(asked) == 0
        expected += value
    assert cluster.end_offsets() == {1: 4, 2: 4, 3: 4}
    assert cluster.records(1) == cluster.records(2) == cluster.records(3)


def test_deposed_leader_truncates_the_tail_that_no_other_replica_has() -> None:
    cluster = started()
    cluster.produce(b"kept")
    cluster.advance(1000)
    cluster.cut(1, 2)
    cluster.cut(1, 3)
    lost = cluster.produce(b"lost", acks=1)
    cluster.advance(100)
    assert cluster.error_of(lost) == 0
    waiting = cluster.produce(b"lost", timeout_ms=60_000)
    cluster.elect(2)
    # It learns that it does not lead any more, while the other brokers cannot reach it.
    assert cluster.error_of(waiting) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.produce(b"new")
    cluster.heal(1, 2)
    cluster.heal(1, 3)
    cluster.advance(5000)
    assert cluster.end_offsets() == {1: 2, 2: 2, 3: 2}
    assert b"lost" not in cluster.records(1)
    assert cluster.records(1) == cluster.records(2) == cluster.records(3)
    assert cluster.high_watermarks() == {1: 2, 2: 2, 3: 2}
