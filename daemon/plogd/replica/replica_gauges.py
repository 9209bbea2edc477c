"""Gauges for partitions, logs, fetch sessions and delayed requests, evaluated at each scrape.

The metrics have the names that the usual JMX exporter rules derive from Kafka's MBeans. Metrics
that Kafka lacks start with ``plog_``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.metadata.cache import MetadataCache
from plogd.metrics import Registry
from plogd.replica.fetch.fetch_sessions import FetchSessionCache
from plogd.replica.partition import Partition
from plogd.replica.replica_manager import ReplicaManager

_PARTITION_LABELS = ("topic", "partition")


def register_gauges(
    metrics: Registry,
    replica_manager: ReplicaManager,
    log_manager: LogManager,
    cache: MetadataCache,
    sessions: FetchSessionCache,
) -> None:
    """Register the gauges; called once per broker."""
    _register_topics(metrics, cache)
    _register_replicas(metrics, replica_manager)
    _register_sessions(metrics, sessions)
    _register_logs(metrics, replica_manager, log_manager)
    _register_syncs(metrics, log_manager)


def _register_topics(metrics: Registry, cache: MetadataCache) -> None:
    prefix = "kafka_controller_kafkacontroller_"
    metrics.gauge(f"{prefix}globaltopiccount", "Topics.", lambda: cache.topic_count)
    metrics.gauge(
        f"{prefix}globalpartitioncount",
        "Number of partitions in all topics.",
        lambda: sum(len(topic.partitions) for topic in cache.topics()),
    )


def _register_replicas(metrics: Registry, manager: ReplicaManager) -> None:
    prefix = "kafka_server_replicamanager_"
    metrics.gauge(
        f"{prefix}partitioncount",
        "Number of partitions on this broker.",
        lambda: len(manager.partitions),
    )
    metrics.gauge(
        f"{prefix}leadercount",
        "Number of partitions that this broker leads.",
        # A partition in a failed directory has no leader, so it is not counted here.
        lambda: sum(one.problem() is None for one in manager.partitions),
    )
    metrics.gauge(
        f"{prefix}offlinereplicacount",
        "Number of partitions on failed log directories.",
        lambda: manager.offline_count,
    )
    _register_in_sync_replicas(metrics, manager)
    _register_waiting(metrics, manager)


def _register_in_sync_replicas(metrics: Registry, manager: ReplicaManager) -> None:
    prefix = "kafka_server_replicamanager_"
    metrics.gauge(
        f"{prefix}underreplicatedpartitions",
        "Number of partitions with replicas that are not in sync.",
        # As in Kafka, only those that this broker leads: a follower does not know the ISR.
        lambda: sum(is_under_replicated(one) for one in _led(manager)),
    )
    metrics.gauge(
        f"{prefix}underminisrpartitioncount",
        "Number of led partitions with fewer in-sync replicas than min.insync.replicas.",
        lambda: sum(len(one.isr) < one.min_isr for one in _led(manager)),
    )
    metrics.gauge(
        f"{prefix}atminisrpartitioncount",
        "Number of led partitions with exactly as many in-sync replicas as min.insync.replicas.",
        lambda: sum(len(one.isr) == one.min_isr for one in _led(manager)),
    )
    metrics.gauge(
        f"{prefix}reassigningpartitions",
        "Number of partitions that this broker leads and that are being moved to other brokers.",
        lambda: sum(bool(one.adding_replicas or one.removing_replicas) for one in _led(manager)),
    )


def _register_waiting(metrics: Registry, manager: ReplicaManager) -> None:
    metrics.gauge(
        "plog_produce_parked_bytes",
        "Bytes of produced records waiting to be appended.",
        lambda: manager.append_queues.parked_bytes,
    )
    metrics.ask(
        "plog_produce_parked_refused_total",
        "Appends rejected because plog.produce.parked.max.bytes was reached.",
        (),
        lambda: [((), manager.append_queues.refused)],
        kind="counter",
    )
    metrics.ask(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Number of delayed requests in purgatory.",
        ("delayedoperation",),
        lambda: [
            (("Produce",), manager.waiting_produces),
            (("Fetch",), len(manager.delayed_fetches)),
            (("DeleteRecords",), len(manager.delayed_deletions)),
        ],
    )


def is_under_replicated(partition: Partition) -> bool:
    """Return whether a replica of a partition that this broker leads is not in sync.

    As in Kafka's OngoingReassignmentState, replicas that a reassignment adds are not expected to
    be in sync yet.
    """
    adding = len(partition.adding_replicas)
    return len(partition.isr) < len(partition.replicas) - adding


def _led(manager: ReplicaManager) -> Iterator[Partition]:
    return (one for one in manager.partitions if one.leader == one.broker_id)


def _register_sessions(metrics: Registry, sessions: FetchSessionCache) -> None:
    prefix = "kafka_server_fetchsessioncache_"
    metrics.gauge(
        f"{prefix}numincrementalfetchsessions",
        "Number of open fetch sessions.",
        lambda: len(sessions),
    )
    metrics.gauge(
        f"{prefix}numincrementalfetchpartitionscached",
        "Number of partitions in open fetch sessions.",
        lambda: sessions.partition_count,
    )
    metrics.ask(
        f"{prefix}incrementalfetchsessionevictions_total",
        "Fetch sessions evicted to make room for others.",
        (),
        lambda: [((), sessions.evictions)],
        kind="counter",
    )


def _register_logs(metrics: Registry, manager: ReplicaManager, log_manager: LogManager) -> None:
    for name, help, of in (
        ("size", "Bytes of records.", lambda log: log.size_bytes),
        ("numlogsegments", "Segments.", lambda log: len(log.segments)),
        ("logstartoffset", "Offset of the first record.", lambda log: log.log_start_offset),
        ("logendoffset", "Offset of the next record.", lambda log: log.log_end_offset),
    ):
        metrics.ask(f"kafka_log_log_{name}", help, _PARTITION_LABELS, _of_each_log(manager, of))
    metrics.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Number of failed log directories.",
        lambda: len(log_manager.offline_dirs),
    )
    metrics.ask(
        "plog_log_task_errors_total",
        "Errors in background tasks for a log or log directory; tasks are retried.",
        ("task",),
        lambda: [((task,), n) for task, n in log_manager.housekeeping.errors_by_task.items()],
        kind="counter",
    )


def _of_each_log(
    manager: ReplicaManager, of: Callable[[Log], float]
) -> Callable[[], Iterator[tuple[tuple[str, ...], float]]]:
    def samples() -> Iterator[tuple[tuple[str, ...], float]]:
        # A copy, because topics may be created or deleted before the next step of this generator.
        for partition in list(manager.partitions):
            topic, number = partition.topic_partition
            yield (topic, str(number)), of(partition.log)

    return samples


def _register_syncs(metrics: Registry, log_manager: LogManager) -> None:
    metrics.ask(
        "plog_log_sync_rounds_total",
        "Group commits, across all disks.",
        (),
        lambda: [((), sum(rounds.rounds for rounds in log_manager.sync_rounds))],
        kind="counter",
    )
    metrics.ask(
        "plog_log_sync_logs_total",
        "Logs made durable by group commits; each log is counted once per round.",
        (),
        lambda: [((), sum(rounds.synced_logs for rounds in log_manager.sync_rounds))],
        kind="counter",
    )
    metrics.ask(
        "plog_log_sync_file_system_rounds_total",
        "Group commits made with a single syncfs call.",
        (),
        lambda: [((), sum(rounds.file_system_rounds for rounds in log_manager.sync_rounds))],
        kind="counter",
    )
