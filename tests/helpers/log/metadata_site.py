"""The embedded metadata of a broker on a simulated disk, with snapshots, for several starts."""

from __future__ import annotations

from typing import Any

from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue
from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.metadata.embedded_metadata import EmbeddedMetadata
from plogd.metadata.embedded_store import METADATA_PARTITION, EmbeddedStore
from plogd.metadata.snapshot_name import SnapshotName, parse_snapshot_name
from plogd.metadata.store import ABSENT, BrokerRegistration, Change, Key, PartitionValue, TopicValue
from plogd.metrics import Registry
from plogd.ports import Later
from tests.helpers.injection import Faults
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import SimPorts, settled

LOG_DIR = "/d"
DIRECTORY = f"{LOG_DIR}/__cluster_metadata-0"
ROOTS = ("feature", "broker", "topic", "partition", "config", "producer_ids", "client_quota")
NEVER_MS = 0

Values = dict[Key, Any]


class MetadataSite:
    """A disk, and the metadata of the broker that runs on it; `settings` are those of the broker.

    By default, a snapshot is written only when `max_bytes` of records follow the last one.
    """

    metadata: EmbeddedMetadata
    manager: LogManager

    def __init__(self, *, max_bytes: int = 1 << 40, interval_ms: int = NEVER_MS) -> None:
        self.ports = SimPorts(files=SimFiles(["/"]))
        self.metrics = Registry()
        self.config = BrokerConfig(
            metadata_log_max_record_bytes_between_snapshots=max_bytes,
            metadata_log_max_snapshot_interval_ms=interval_ms,
            log_segment_delete_delay_ms=0,
        )

    @property
    def files(self) -> SimFiles:
        return self.ports.files

    @property
    def store(self) -> EmbeddedStore:
        return self.metadata.store

    @property
    def log(self) -> Log:
        return self.manager.logs[METADATA_PARTITION]

    def start(
        self,
        files: SimFiles | None = None,
        *,
        faults: Faults | None = None,
        registers: bool = True,
    ) -> EmbeddedStore:
        """Open the metadata and register the broker; `files` replaces the disk after a crash."""
        if files is not None:
            self.ports = self.ports.next_life(files)
        ports = self.ports.bundle()
        if faults is not None:
            ports = faults.ports(ports)
        queue = FairQueue(ports.timers)
        self.manager = LogManager(self.config, [LOG_DIR], ports, fair_queue=queue)
        self.settle(self.manager.open_directories())
        self.metrics = Registry()
        self.metadata = EmbeddedMetadata(
            self.manager,
            ports,
            config=self.config,
            metrics=self.metrics,
            fair_queue=queue,
            refuse_writes=lambda refuses: None,
            may_retry=lambda: True,
        )
        self.settle(self.metadata.open())
        self.manager.on_offline = lambda log_dir, logs: self.store.storage_failed()
        if registers:
            registration = BrokerRegistration(broker_id=1, incarnation_id=b"i" * 16)
            self.settle(self.store.register_broker(registration))
        return self.store

    def restart(self) -> EmbeddedStore:
        """Kill the process and start the next one."""
        return self.start(self.files.kill())

    def stop(self) -> None:
        """Stop cleanly."""
        self.settle(self.metadata.stop())
        self.settle(self.manager.shutdown())

    def settle(self, later: Later[Any]) -> Any:
        return settled(self.ports, later)

    # -- changes ------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1) -> None:
        """Create a topic."""
        self.settle(self.store.write_atomic(topic_changes(name, partitions)))

    def delete(self, name: str) -> None:
        """Delete a topic."""
        key: Key = ("topic", name)
        change = Change(key=key, value=None, expected=self.store.get(key)[1])
        self.settle(self.store.write([change]))

    def configure(self, name: str, **settings: str) -> None:
        """Replace the settings of a topic."""
        key: Key = ("config", "topic", name)
        change = Change(key=key, value=settings or None, expected=self.store.get(key)[1])
        self.settle(self.store.write([change]))

    # -- state --------------------------------------------------------------------------------

    @property
    def values(self) -> Values:
        """All keys and their values."""
        return values_of(self.store)

    @property
    def snapshots(self) -> list[SnapshotName]:
        """The complete snapshots on disk."""
        parsed = [parse_snapshot_name(name) for name in self.files.listdir(DIRECTORY)]
        return [name for name in parsed if name is not None]

    @property
    def parts(self) -> list[str]:
        """The incomplete snapshots on disk."""
        return [name for name in self.files.listdir(DIRECTORY) if name.endswith(".part")]

    def path(self, name: SnapshotName) -> str:
        return f"{DIRECTORY}/{name.file_name}"


def values_of(store: EmbeddedStore) -> Values:
    """Return all keys and their values."""
    return {key: value for root in ROOTS for key, (value, _) in store.load((root,)).items()}


def topic_changes(name: str, partitions: int = 1) -> list[Change]:
    """Return the changes that create a topic."""
    topic = TopicValue(
        topic_id=name.encode().rjust(16, b"."), assignments={n: (1,) for n in range(partitions)}
    )
    state = PartitionValue(leader=1, leader_epoch=0, isr=(1,), partition_epoch=0)
    return [
        Change(key=("topic", name), value=topic, expected=ABSENT),
        *(
            Change(key=("partition", name, number), value=state, expected=ABSENT)
            for number in range(partitions)
        ),
    ]
