"""What operators see in the logs of a cluster's brokers."""

from __future__ import annotations

import errno

import pytest

from plog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from tests.helpers.sim.zookeeper_cluster import ZooKeeperCluster

PARTITIONS = 20


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    """Three brokers."""
    return ZooKeeperCluster(3)


def lines(cluster: ZooKeeperCluster, broker: int, part: str) -> list[str]:
    """Return the lines of a broker that contain this part."""
    return [line for line in cluster.brokers[broker].reports if part in line]


@pytest.mark.parametrize(("delay_ms", "count"), [(2_000, 0), (20_000, 1)])
def test_follower_reports_a_leader_that_does_not_know_its_role_once_and_only_if_this_lasts(
    cluster: ZooKeeperCluster, delay_ms: float, count: int
) -> None:
    controller = cluster.controller
    leader, follower = {1, 2, 3} - {controller}
    cluster.cut(controller, leader)
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=[leader, follower])
            for number in range(PARTITIONS)
        ],
    )
    created = cluster.brokers[controller].begin(CreateTopicsRequest(topics=[topic]), 7)
    cluster.advance(delay_ms)
    cluster.heal(controller, leader)
    cluster.until(lambda: created.is_done)
    assert created.response().topics[0].error_code == 0
    assert cluster.produce("t", b"a") == 0
    cluster.advance(5_000)
    failures = lines(cluster, follower, "cannot replicate")
    assert len(failures) == count
    assert all(f"{PARTITIONS} partitions" in line for line in failures)
    again = len(lines(cluster, follower, f"from broker {leader} again"))
    assert again == 0 if count == 0 else 1 <= again < PARTITIONS / 4


def test_full_disk_of_a_follower_and_its_end_are_reported_once(cluster: ZooKeeperCluster) -> None:
    cluster.create("t", partitions=PARTITIONS)
    follower = 1
    files = cluster.brokers[follower].files
    files.fail_when(
        lambda operation: operation.name == "append" and ".log" in operation.path, errno.ENOSPC
    )
    led = [number for number in range(PARTITIONS) if cluster.leader("t", number) != follower]
    for number in led:
        cluster.begin_produce("t", b"a", number=number, acks=1)
    cluster.advance(10_000)
    # One line for each leader, unless its records arrive in several responses.
    failures = lines(cluster, follower, "cannot replicate")
    assert 2 <= len(failures) < len(led) / 2
    files.fail_no_more()
    cluster.advance(10_000)
    assert lines(cluster, follower, "cannot replicate") == failures
    assert 2 <= len(lines(cluster, follower, "again")) < len(led) / 2
