"""Metrics of the session with ZooKeeper."""

from __future__ import annotations

from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster

PREFIX = "kafka_server_sessionexpirelistener_"


def metrics(cluster: ZooKeeperCluster) -> tuple[str, str, str]:
    lines = cluster.brokers[1].metrics.expose().decode().splitlines()
    values = dict(line.split(" ") for line in lines if not line.startswith("#"))
    return (
        values[f"{PREFIX}zookeeperexpires_total"],
        values[f"{PREFIX}zookeeperdisconnects_total"],
        values["plog_zookeeper_connected"],
    )


def test_lost_connections_and_expired_sessions_are_counted() -> None:
    cluster = ZooKeeperCluster(1)
    assert metrics(cluster) == ("0", "0", "1")
    cluster.client(1).cut()
    cluster.until(lambda: metrics(cluster) == ("0", "1", "0"))
    cluster.client(1).restore()
    cluster.until(lambda: metrics(cluster) == ("0", "1", "1"))
    cluster.client(1).cut()
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    cluster.client(1).restore()
    cluster.until(lambda: metrics(cluster) == ("1", "2", "1"))
