"""The embedded metadata of a broker: the metadata log, the store over it, and its snapshots.

broker.py opens it at startup, before the logs of topics are loaded.
"""

from __future__ import annotations

from typing import Final

from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue
from plogd.log.disk.reserved_space import keep_room
from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.metadata.embedded_store import METADATA_PARTITION, METADATA_TOPIC_ID, EmbeddedStore
from plogd.metadata.snapshot_generator import SnapshotGenerator
from plogd.metrics import Registry
from plogd.ports import Jobs, Later, Ports
from plogd.topic_config import TopicConfig

METADATA_LOG_CONFIG: Final = TopicConfig(
    cleanup_policy=(),  # Only records that snapshots replace are deleted.
    # A change is answered only after its record is durable.
    flush_messages=1,
    # All changes in a write are in one batch, such as those for a topic with many partitions.
    max_message_bytes=64 << 20,
)


class EmbeddedMetadata:
    """The open metadata log of a broker, with its `store`."""

    def __init__(
        self, log: Log, store: EmbeddedStore, snapshots: SnapshotGenerator, jobs: Jobs
    ) -> None:
        self.store = store
        self._log = log
        self._snapshots = snapshots
        self._jobs = jobs

    def keep_room(self) -> Later[bool]:
        """Reserve disk space for metadata records; return whether enough space is reserved.

        With this reserve, the broker can start and topics can be deleted even if the disk is full.
        """
        return keep_room(self._log, self._jobs)

    def stop(self) -> Later[None]:
        """Write no more snapshots; call this before the log is closed."""
        return self._snapshots.stop()


async def open_embedded_metadata(
    log_manager: LogManager,
    ports: Ports,
    *,
    config: BrokerConfig,
    metrics: Registry,
    fair_queue: FairQueue,
) -> EmbeddedMetadata:
    """Load the metadata. Raises PlogError if that is impossible, and does not start empty then."""
    log = await log_manager.load_metadata_log(
        METADATA_PARTITION, METADATA_TOPIC_ID, METADATA_LOG_CONFIG
    )
    store = EmbeddedStore(log, clock=ports.clock, turn=ports.turn, fair_queue=fair_queue)
    snapshots = SnapshotGenerator(
        log,
        ports,
        fair_queue=fair_queue,
        housekeeping=log_manager.housekeeping,
        image=lambda: store.stable_image,
        loaded=store.open(ports.files, ports.report),
        max_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        interval_ms=config.metadata_log_max_snapshot_interval_ms,
    )
    store.on_applied = snapshots.applied
    _register_gauges(metrics, snapshots)
    await snapshots.start()
    return EmbeddedMetadata(log, store, snapshots, ports.jobs)


def _register_gauges(metrics: Registry, snapshots: SnapshotGenerator) -> None:
    """Register gauges with the names of Kafka's SnapshotEmitterMetrics."""
    metrics.gauge(
        "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes",
        "Size in bytes of the newest metadata snapshot; 0 without one.",
        lambda: snapshots.newest_bytes,
    )
    metrics.gauge(
        "kafka_server_snapshotemitter_latestsnapshotgeneratedagems",
        "Time since the newest metadata snapshot was written, or since the start.",
        lambda: snapshots.newest_age_ms,
    )
