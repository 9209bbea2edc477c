"""A log directory of a broker in a cluster fails: other replicas lead, until it is repaired."""

from __future__ import annotations

import errno

import pytest

from plog.errors import ErrorCode
from tests.helpers.sim.sim_files import Operation, SimFiles
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster

DIRS = ("/a", "/b")


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    """Three brokers with two log directories each, and a topic with a log in each of them."""
    cluster = ZooKeeperCluster(3, log_dirs=DIRS)
    cluster.create("t", partitions=2)
    for number in range(2):
        assert cluster.produce("t", b"kept", number=number) == 0
    return cluster


def break_dir(files: SimFiles, log_dir: str) -> None:
    """Let every operation in a directory fail."""

    def is_in_it(operation: Operation) -> bool:
        return operation.path == log_dir or operation.path.startswith(f"{log_dir}/")

    files.fail_when(is_in_it, errno.EIO)


def dir_of(cluster: ZooKeeperCluster, node_id: int, number: int) -> str:
    """Return the directory with a broker's log."""
    return cluster.replica(node_id, "t", number).log.log_dir


def offline(cluster: ZooKeeperCluster, node_id: int) -> list[tuple[int, ...]]:
    """Return the offline replicas that a broker shows to clients."""
    topic = cluster.brokers[node_id].broker.cache.topic("t")
    assert topic is not None
    return [state.offline_replicas for state in topic.partitions]


def test_other_replicas_lead_the_partitions_of_a_failed_directory(
    cluster: ZooKeeperCluster,
) -> None:
    old = cluster.leader("t")
    other = next(one for one in (1, 2, 3) if one != old)
    assert dir_of(cluster, old, 0) != dir_of(cluster, old, 1)
    break_dir(cluster.files[old], dir_of(cluster, old, 0))
    # The failure of the write is noticed; the record is not acknowledged.
    assert cluster.produce("t", b"lost", to=old) == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.until(lambda: cluster.leader("t") != old, within_ms=1_000)
    cluster.advance(100)
    assert old not in cluster.state("t").isr
    assert cluster.produce("t", b"new") == 0
    assert cluster.values("t") == [b"kept", b"new"]
    # The broker goes on with its other directory.
    assert sorted(cluster.state("t", 1).isr) == [1, 2, 3]
    assert offline(cluster, other) == [(old,), ()]
    assert cluster.zookeeper.names("/log_dir_event_notification") == []


def test_replicas_stay_offline_until_their_directory_is_repaired(
    cluster: ZooKeeperCluster,
) -> None:
    old = cluster.leader("t")
    other = next(one for one in (1, 2, 3) if one != old)
    broken = dir_of(cluster, old, 0)
    intact = next(one for one in DIRS if one != broken)
    break_dir(cluster.files[old], broken)
    assert cluster.produce("t", b"lost", to=old) == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.advance(1_000)
    cluster.kill(old)
    break_dir(cluster.files[old], broken)
    cluster.start(old)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    # No empty log in the other directory hides the records.
    assert "t-0" not in cluster.files[old].listdir(intact)
    assert old not in cluster.state("t").isr
    assert offline(cluster, other) == [(old,), ()]
    assert cluster.produce("t", b"new") == 0
    cluster.kill(old)
    cluster.start(old)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert sorted(cluster.state("t").isr) == [1, 2, 3]
    assert offline(cluster, other) == [(), ()]
    assert cluster.replica(old, "t").log.log_end_offset == 2


def test_failure_is_reported_when_zookeeper_can_be_reached_again(
    cluster: ZooKeeperCluster,
) -> None:
    old = cluster.leader("t")
    cluster.zookeeper.lose_quorum()
    break_dir(cluster.files[old], dir_of(cluster, old, 0))
    assert cluster.produce("t", b"lost", to=old) == ErrorCode.KAFKA_STORAGE_ERROR
    cluster.advance(1_000)
    cluster.zookeeper.restore_quorum()
    cluster.until(lambda: cluster.has_controller and cluster.leader("t") != old)
    cluster.advance(100)
    assert cluster.produce("t", b"new") == 0
