"""Metrics of replication: ISR changes, lag of followers, and replicas per partition."""

from __future__ import annotations

import pytest

from tests.helpers.sim.zookeeper_cluster import ZooKeeperCluster

MANAGER = "kafka_server_replicamanager_"
FETCHERS = "kafka_server_replicafetchermanager_"
PARTITION = "kafka_cluster_partition_"


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    cluster = ZooKeeperCluster(3)
    cluster.create_away_from_controller("t")
    cluster.advance(1_000)
    return cluster


def metrics(cluster: ZooKeeperCluster, node_id: int) -> dict[str, float]:
    text = cluster.brokers[node_id].metrics.expose().decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_changes_of_the_isr_are_counted(cluster: ZooKeeperCluster) -> None:
    leader = cluster.leader("t")
    follower = next(one for one in (1, 2, 3) if one not in (leader, cluster.controller))
    before = metrics(cluster, leader)
    assert (before[f"{MANAGER}isrshrinks_total"], before[f"{MANAGER}isrexpands_total"]) == (0, 0)
    cluster.cut(leader, follower)
    assert cluster.produce("t", b"a", acks=1) == 0
    cluster.until(lambda: follower not in cluster.state("t").isr)
    cluster.advance(100)
    during = metrics(cluster, leader)
    assert during[f"{MANAGER}isrshrinks_total"] == 1
    assert during[f"{MANAGER}underreplicatedpartitions"] == 1
    labels = '{topic="t",partition="0"}'
    assert during[f"{PARTITION}underreplicated{labels}"] == 1
    assert during[f"{PARTITION}insyncreplicascount{labels}"] == 2
    assert during[f"{PARTITION}replicascount{labels}"] == 3
    cluster.heal(leader, follower)
    cluster.until(lambda: follower in cluster.state("t").isr)
    cluster.advance(100)
    after = metrics(cluster, leader)
    assert (after[f"{MANAGER}isrshrinks_total"], after[f"{MANAGER}isrexpands_total"]) == (1, 1)
    assert after[f"{MANAGER}underreplicatedpartitions"] == 0


def test_partitions_below_and_at_min_isr_are_counted_by_their_leader() -> None:
    cluster = ZooKeeperCluster(2, min_insync_replicas=2)
    cluster.create("t", replication_factor=2)
    cluster.advance(1_000)
    leader, labels = cluster.leader("t"), '{topic="t",partition="0"}'

    def counts() -> tuple[float, float, float, float]:
        found = metrics(cluster, leader)
        return (
            found[f"{MANAGER}underminisrpartitioncount"],
            found[f"{MANAGER}atminisrpartitioncount"],
            found[f"{PARTITION}underminisr{labels}"],
            found[f"{PARTITION}atminisr{labels}"],
        )

    assert counts() == (0, 1, 0, 1)
    follower = 3 - leader
    assert metrics(cluster, follower)[f"{MANAGER}atminisrpartitioncount"] == 0
    assert f"{PARTITION}atminisr{labels}" not in metrics(cluster, follower)
    cluster.stop(follower)
    cluster.advance(1_000)
    assert counts() == (1, 0, 1, 0)


def test_lag_of_a_follower_is_the_number_of_committed_records_that_it_lacks() -> None:
    # Each response contains one batch.
    cluster = ZooKeeperCluster(3, replica_fetch_max_bytes=1, replica_fetch_response_max_bytes=1)
    _, follower = cluster.create_away_from_controller("t")
    cluster.kill(follower)
    cluster.until(lambda: follower not in cluster.state("t").isr)
    for _ in range(10):
        assert cluster.produce("t", b"a") == 0
    cluster.start(follower)
    seen: list[tuple[float, float, float]] = []

    def has_all() -> bool:
        found = metrics(cluster, follower)
        end = found.get('kafka_log_log_logendoffset{topic="t",partition="0"}', 0)
        name = f'{FETCHERS}maxlag{{clientid="Replica"}}'
        each = found.get('kafka_server_fetcherlagmetrics_consumerlag{topic="t",partition="0"}', 0)
        seen.append((end, found[name], each))
        return end == 10

    cluster.until(has_all)
    lags = [one for one in seen if 0 < one[0] < 10]
    assert lags
    assert all(most == each == 10 - end for end, most, each in lags)
    assert seen[-1] == (10, 0, 0)


def test_records_for_followers_do_not_count_as_sent_to_consumers(
    cluster: ZooKeeperCluster,
) -> None:
    prefix, leader = "kafka_server_brokertopicmetrics_", cluster.leader("t")
    assert cluster.produce("t", b"a") == 0
    nbytes = cluster.replica(leader, "t").log.size_bytes
    found = metrics(cluster, leader)
    assert found[f"{prefix}replicationbytesout_total"] == 2 * nbytes
    assert found[f'{prefix}bytesout_total{{topic="t"}}'] == 0
    for follower in {1, 2, 3} - {leader}:
        assert metrics(cluster, follower)[f"{prefix}replicationbytesin_total"] == nbytes
    assert cluster.values("t") == [b"a"]
    found = metrics(cluster, leader)
    assert found[f'{prefix}bytesout_total{{topic="t"}}'] == nbytes
    assert found[f"{prefix}replicationbytesout_total"] == 2 * nbytes


def test_partitions_that_cannot_be_fetched_are_counted(cluster: ZooKeeperCluster) -> None:
    leader = cluster.leader("t")
    follower = next(one for one in (1, 2, 3) if one != leader)
    name = f'{FETCHERS}failedpartitionscount{{clientid="Replica"}}'
    assert metrics(cluster, follower)[name] == 0
    cluster.kill(leader)
    cluster.until(lambda: metrics(cluster, follower)[name] == 1)
