"""Replication between the brokers of a cluster, with the test as the controller."""

from __future__ import annotations

from plog.errors import ErrorCode
from tests.helpers.sim.sim_cluster import SimCluster
from tests.helpers.sim.sim_ports import outcome

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


def test_cluster_replicates_on_slow_disks_while_leaders_change() -> None:
    cluster = started()
    for broker in cluster.brokers.values():
        broker.files.append_ms = lambda path: 25.0
    for leader in (2, 3, 1, 2):
        for _ in range(3):
            cluster.produce(b"acknowledged", timeout_ms=60_000)
        # Jobs are still writing, and followers have not fetched everything.
        cluster.elect(leader)
        asked = cluster.produce(b"last of the epoch", timeout_ms=60_000)
        cluster.advance(3000)
        assert cluster.error_of(asked) == 0
    logs = [cluster.records(one) for one in (1, 2, 3)]
    assert logs[0] == logs[1] == logs[2]
    assert logs[0].count(b"last of the epoch") == 4
    epochs = [cluster.partition(one).log.leader_epochs.entries for one in (1, 2, 3)]
    assert epochs[0] == epochs[1] == epochs[2]


def test_wiped_follower_copies_everything_again() -> None:
    cluster = started()
    for number in range(5):
        cluster.produce(b"%d" % number)
    cluster.advance(1000)
    cluster.kill(3)
    cluster.produce(b"5", acks=1)
    cluster.advance(2 * LAG_MS)
    assert cluster.partition(1).isr == (1, 2)
    cluster.start(3)
    cluster.elect(1, isr=(1, 2))
    cluster.advance(2 * LAG_MS)
    assert cluster.records(3) == cluster.records(1)
    assert sorted(cluster.partition(1).isr) == [1, 2, 3]
    assert any("an empty log for t-0" in line for line in cluster.brokers[3].reports)


def test_replica_that_the_controller_refuses_does_not_hold_up_the_high_watermark() -> None:
    cluster = started()
    cluster.alter_error = lambda asked: ErrorCode.INELIGIBLE_REPLICA
    cluster.elect(1, isr=(1, 2))
    asked = cluster.produce(b"a")
    cluster.advance(1000)
    assert cluster.error_of(asked) == 0
    assert cluster.asked
    assert cluster.partition(1).isr == (1, 2)
    cluster.alter_error = lambda asked: 0
    cluster.advance(1000)
    assert sorted(cluster.partition(1).isr) == [1, 2, 3]


def test_stopped_cluster_sends_nothing_more() -> None:
    cluster = started()
    cluster.cut(1, 3)
    for one in (1, 2, 3):
        cluster.replicas[one].stop()
    cluster.produce(b"a", acks=1)
    cluster.advance(3 * LAG_MS)
    assert cluster.asked == []
    assert cluster.end_offsets() == {1: 1, 2: 0, 3: 0}


def test_broker_that_stops_leaves_a_clean_disk_behind() -> None:
    cluster = started()
    for number in range(3):
        cluster.produce(b"%d" % number)
    stopped = cluster.brokers[2].broker.stop()
    cluster.advance(1000)
    outcome(stopped)
    assert ".kafka_cleanshutdown" in cluster.files[2].listdir("/data")
    cluster.kill(2)
    cluster.start(2, cluster.files[2])
    cluster.elect(1)
    asked = cluster.produce(b"last")
    cluster.advance(2000)
    assert cluster.error_of(asked) == 0
    assert cluster.records(1) == cluster.records(2) == cluster.records(3)


def test_followers_do_not_count_as_under_replicated() -> None:
    cluster = started()
    cluster.cut(1, 3)
    cluster.produce(b"a", acks=1)
    cluster.advance(2 * LAG_MS)
    name = "kafka_server_replicamanager_underreplicatedpartitions"
    values = [
        line.split()[-1]
        for one in (1, 2, 3)
        for line in cluster.brokers[one].metrics.lines()
        if line.startswith(name)
    ]
    assert values == ["1", "0", "0"]


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
