"""Metrics of the session with ZooKeeper: Kafka's SessionExpireListener.

Kafka also has the state of the session as text, which Prometheus cannot represent. Here, it is a
number, whose name starts with ``plog_``.
"""

from __future__ import annotations

from plogd.metadata.zookeeper.zookeeper_metadata import ZooKeeperMetadata
from plogd.metrics import Registry


def register_zookeeper_gauges(metrics: Registry, metadata: ZooKeeperMetadata) -> None:
    """Register the metrics; called once per broker."""
    prefix = "kafka_server_sessionexpirelistener_"
    metrics.ask(
        f"{prefix}zookeeperexpires_total",
        "Sessions with ZooKeeper that have expired.",
        (),
        lambda: [((), metadata.expirations)],
        kind="counter",
    )
    metrics.ask(
        f"{prefix}zookeeperdisconnects_total",
        "Connections to ZooKeeper that were lost.",
        (),
        lambda: [((), metadata.disconnects)],
        kind="counter",
    )
    metrics.gauge(
        "plog_zookeeper_connected",
        "Whether there is a connection to ZooKeeper.",
        lambda: metadata.is_connected,
    )
