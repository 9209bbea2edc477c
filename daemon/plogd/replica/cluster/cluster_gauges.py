"""Metrics of replication between brokers, evaluated at each scrape.

The metrics have the names that the usual JMX exporter rules derive from Kafka's MBeans
(ReplicaManager, ReplicaFetcherManager, Partition). A single broker does not have them, except those
in replica_gauges.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from plogd.metrics import Registry
from plogd.replica.cluster.alter_partition_manager import AlterPartitionManager
from plogd.replica.follower.replica_fetcher_manager import ReplicaFetcherManager
from plogd.replica.partition import Partition
from plogd.replica.replica_gauges import is_under_replicated
from plogd.replica.replica_manager import ReplicaManager

_PARTITION_LABELS = ("topic", "partition")


def register_cluster_gauges(
    metrics: Registry,
    manager: ReplicaManager,
    fetchers: ReplicaFetcherManager,
    isr_changes: AlterPartitionManager,
) -> None:
    """Register the metrics; called once per broker of a cluster."""
    _register_isr_changes(metrics, isr_changes)
    _register_fetchers(metrics, fetchers)
    _register_partitions(metrics, manager)


def _register_isr_changes(metrics: Registry, changes: AlterPartitionManager) -> None:
    prefix = "kafka_server_replicamanager_"
    counts: tuple[tuple[str, str, Callable[[], int]], ...] = (
        (
            "isrshrinks_total",
            "Changes that removed in-sync replicas of partitions that this broker leads.",
            lambda: changes.shrinks,
        ),
        (
            "isrexpands_total",
            "Changes that added in-sync replicas of partitions that this broker leads.",
            lambda: changes.expansions,
        ),
        (
            "failedisrupdates_total",
            "Changes of in-sync replicas that the controller has rejected.",
            lambda: changes.failures,
        ),
    )
    for name, help, count in counts:
        metrics.ask(f"{prefix}{name}", help, (), _single(count), kind="counter")


def _single(count: Callable[[], int]) -> Callable[[], list[tuple[tuple[str, ...], float]]]:
    return lambda: [((), count())]


def _register_fetchers(metrics: Registry, fetchers: ReplicaFetcherManager) -> None:
    metrics.ask(
        "kafka_server_replicafetchermanager_maxlag",
        "Largest number of committed offsets of a leader that a follower on this broker lacks.",
        ("clientid",),
        lambda: [(("Replica",), max((lag for _, lag in fetchers.lags()), default=0))],
    )
    metrics.ask(
        "kafka_server_replicafetchermanager_failedpartitionscount",
        "Number of partitions on this broker whose last fetch from their leader has failed.",
        ("clientid",),
        lambda: [(("Replica",), fetchers.failed_count)],
    )
    metrics.ask(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Number of committed offsets of the leader that this follower lacks.",
        _PARTITION_LABELS,
        lambda: (((key.topic, str(key.partition)), lag) for key, lag in fetchers.lags()),
    )


def _register_partitions(metrics: Registry, manager: ReplicaManager) -> None:
    prefix = "kafka_cluster_partition_"
    for name, help, of in (
        ("replicascount", "Replicas.", lambda one: len(one.replicas)),
        ("insyncreplicascount", "In-sync replicas.", lambda one: len(one.isr)),
        (
            "underreplicated",
            "Whether a replica is not in sync.",
            is_under_replicated,
        ),
        (
            "underminisr",
            "Whether there are fewer in-sync replicas than min.insync.replicas.",
            lambda one: len(one.isr) < one.min_isr,
        ),
        (
            "atminisr",
            "Whether there are exactly as many in-sync replicas as min.insync.replicas.",
            lambda one: len(one.isr) == one.min_isr,
        ),
    ):
        metrics.ask(f"{prefix}{name}", help, _PARTITION_LABELS, _of_each_led(manager, of))


def _of_each_led(
    manager: ReplicaManager, of: Callable[[Partition], float]
) -> Callable[[], Iterator[tuple[tuple[str, ...], float]]]:
    def samples() -> Iterator[tuple[tuple[str, ...], float]]:
        # A copy, because topics may be created or deleted before the next step of this generator.
        for partition in list(manager.partitions):
            if partition.leader == partition.broker_id:
                topic, number = partition.topic_partition
                yield (topic, str(number)), of(partition)

    return samples
