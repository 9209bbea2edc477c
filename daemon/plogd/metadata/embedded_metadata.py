"""The embedded metadata of a broker: the metadata log, the store over it, and its snapshots.

broker.py opens it at startup, before the logs of topics are loaded. If the disk is full, the
registration of the broker is written later (`EmbeddedStore.register_broker`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from plog.types import TopicPartition
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue
from plogd.log.disk.log_dirs import known_or_new
from plogd.log.disk.reserved_space import keep_room
from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.metadata.embedded_store import METADATA_PARTITION, METADATA_TOPIC_ID, EmbeddedStore
from plogd.metadata.snapshot_generator import SnapshotGenerator
from plogd.metadata.store import BrokerRegistration, MetadataStore
from plogd.metrics import Registry
from plogd.ports import Later, Ports, ready, spawn
from plogd.topic_config import TopicConfig

_NO_SPACE_RETRY_MS: Final = 1_000
"""Interval between attempts to write the registration that a full disk has postponed."""
METADATA_LOG_CONFIG: Final = TopicConfig(
    cleanup_policy=(),  # Only records that snapshots replace are deleted.
    # A change is answered only after its record is durable.
    flush_messages=1,
    # All changes in a write are in one batch, such as those for a topic with many partitions.
    max_message_bytes=64 << 20,
)


class EmbeddedMetadata:
    """A `ClusterMetadata` whose store is a log of this broker.

    Args:
        refuse_writes: rejects or accepts writes to all partitions.
        may_retry: returns whether the broker is still running.
    """

    def __init__(
        self,
        log_manager: LogManager,
        ports: Ports,
        *,
        config: BrokerConfig,
        metrics: Registry,
        fair_queue: FairQueue,
        refuse_writes: Callable[[bool], None],
        may_retry: Callable[[], bool],
    ) -> None:
        self._log_manager = log_manager
        self._ports = ports
        self._config = config
        self._metrics = metrics
        self._fair_queue = fair_queue
        self._refuse_writes = refuse_writes
        self._may_retry = may_retry
        self._log: Log | None = None
        self._store: EmbeddedStore | None = None
        self._snapshots: SnapshotGenerator | None = None

    @property
    def store(self) -> EmbeddedStore:
        """The store; available after `open`."""
        assert self._store is not None, "the broker has not started"
        return self._store

    def cluster_id(self, known: str, new: str) -> Later[str]:
        """Return the id in the log directories; a new broker is a new cluster."""
        return known_or_new(known, new)

    def open(self) -> Later[MetadataStore]:
        """Load the metadata log. Fails with PlogError, and never starts empty then."""
        return spawn(self._open())

    async def _open(self) -> MetadataStore:
        log = await self._log_manager.load_metadata_log(
            METADATA_PARTITION, METADATA_TOPIC_ID, METADATA_LOG_CONFIG
        )
        ports = self._ports
        store = EmbeddedStore(log, clock=ports.clock, turn=ports.turn, fair_queue=self._fair_queue)
        self._log, self._store = log, store
        snapshots = SnapshotGenerator(
            log,
            ports,
            fair_queue=self._fair_queue,
            housekeeping=self._log_manager.housekeeping,
            image=lambda: store.stable_image,
            loaded=store.open(ports.files, ports.report),
            max_bytes=self._config.metadata_log_max_record_bytes_between_snapshots,
            interval_ms=self._config.metadata_log_max_snapshot_interval_ms,
        )
        store.on_applied = snapshots.applied
        _register_gauges(self._metrics, snapshots)
        await snapshots.start()
        self._snapshots = snapshots
        return store

    def keep_room(self) -> Later[bool]:
        """Reserve disk space for metadata records; return whether enough space is reserved.

        With this reserve, the broker can start and topics can be deleted even if the disk is full.
        """
        assert self._log is not None, "the broker has not started"
        return keep_room(self._log, self._ports.jobs)

    def logs_failed(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Fail all writes if the metadata log is one of these."""
        if METADATA_PARTITION in topic_partitions and self._store is not None:
            # Otherwise, pending changes would wait for a sync of a log that is offline.
            self._store.storage_failed()

    def stop(self) -> Later[None]:
        """Write no more snapshots; call this before the log is closed."""
        return ready(None) if self._snapshots is None else self._snapshots.stop()

    # -- the registration ---------------------------------------------------------------------

    def register(self, registration: BrokerRegistration) -> Later[int]:
        """Register this broker; if the disk is full, writes are rejected until it has space."""
        return self.store.register_broker(registration).map(self._registered)

    def _registered(self, broker_epoch: int) -> int:
        # If the registration could not be written, the broker would reuse the leader epochs of
        # these writes after a crash.
        self._refuse_writes(not self.store.is_registered)
        return broker_epoch

    @property
    def problem(self) -> str:
        """Why the broker rejects writes: it could not be registered."""
        if self._store is None or self._store.is_registered:
            return ""
        return f"writes are rejected: no space left in {self._store.log_dir}"

    def started(self) -> None:
        """Start to retry the registration if the disk was too full for it."""
        if not self.store.is_registered:
            self._ports.report(
                "cannot register this broker: no space left in {log_dir}; reads and retention"
                " continue, and writes are rejected until space is available",
                log_dir=self.store.log_dir,
                level="error",
            )
            self._register_later()

    def _register_later(self) -> None:
        """Retry the registration until it is written or the disk fails."""

        def registered(_: None) -> None:
            self._refuse_writes(False)
            self._ports.report(
                "registered this broker: space is available again; writes are accepted"
            )

        def retry() -> None:
            if self._may_retry() and not self.store.has_failed:
                self.store.retry_registration().then(registered, lambda _: self._register_later())

        self._ports.timers.call_later(_NO_SPACE_RETRY_MS, retry)


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
