"""A log directory as a stopped Kafka broker leaves it, built by hand on any Files port.

    data = KafkaData(SimFiles(["/kafka"]), "/kafka", node_id=7)
    data.topic("clicks", TOPIC_ID, partitions=2)
    data.log("clicks", 0, batch(values, base_offset=0))
    data.stop()

It contains only the files that an import reads. tests/integration/broker/test_adoption.py uses
real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, encode_control_key
from plog.types import TopicPartition, Uuid, uuid_to_text
from plog.wire.internal.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    encode_metadata_record,
)
from plog.wire.primitives import encode_varint
from plogd.log import file_names
from plogd.log.disk import checkpoint_files, clean_shutdown
from plogd.ports import Files

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
T0 = 1_700_000_000_000


def topic_id(number: int) -> Uuid:
    """Return a topic id."""
    return bytes([0x40 + number] * 16)


def batch(values: Sequence[bytes], base_offset: int = 0, epoch: int = 3, **fields: Any) -> bytes:
    """Return a batch in the form in which a broker stores it."""
    records = [Record(timestamp=T0 + n, value=value) for n, value in enumerate(values)]
    return build_batch(records, base_offset=base_offset, partition_leader_epoch=epoch, **fields)


def control_batch(kind: ControlType, base_offset: int = 0, **fields: Any) -> bytes:
    """Return a control batch of one record."""
    record = Record(timestamp=T0, key=encode_control_key(kind), value=b"\0\0\0\0\0\0")
    return build_batch(
        [record], base_offset=base_offset, is_control=True, partition_leader_epoch=3, **fields
    )


def values_batch(values: Sequence[bytes], base_offset: int) -> bytes:
    """Return encoded metadata records as a batch of Kafka's metadata log."""
    records = [Record(timestamp=T0, value=value) for value in values]
    return build_batch(records, base_offset=base_offset, partition_leader_epoch=1)


def unknown_record(key: int) -> bytes:
    """Return a metadata record of a type that an import skips or does not know."""
    return b"".join(map(encode_varint, (1, key, 0))) + b"\1\2\3"


class KafkaData:
    """The files of a Kafka broker; with `kraft`, its metadata is in a log."""

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        node_id: int = 7,
        kraft: bool = True,
        directory_id: str = "",
    ) -> None:
        self.files = files
        self.path = path
        self.node_id = node_id
        self.metadata: list[bytes] = []
        self.offsets: dict[TopicPartition, int] = {}
        files.mkdir(path)
        text = f"version=0\ncluster.id={CLUSTER_ID}\nbroker.id={node_id}\n"
        if kraft:
            text = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={node_id}\n"
        self.write("meta.properties", text.encode())
        self._kraft = kraft

    def write(self, name: str, data: bytes) -> None:
        """Replace a file, durably."""
        path = f"{self.path}/{name}"
        if self.files.exists(path):
            self.files.unlink(path)
        file = self.files.open_append(path)
        file.append(data)
        file.sync()
        file.close()

    # -- metadata -----------------------------------------------------------------------------

    def record(self, record: MetadataRecord, version: int = 0) -> None:
        """Append a metadata record."""
        self.metadata.append(encode_metadata_record(record, version))

    def topic(
        self, name: str, uuid: Uuid, partitions: int = 1, *, leader_epoch: int = 5, **config: str
    ) -> None:
        """Add a topic with one replica to the metadata; `config` with underscores for dots."""
        self.record(TopicRecord(name=name, topic_id=uuid))
        for number in range(partitions):
            self.record(
                PartitionRecord(
                    partition_id=number,
                    topic_id=uuid,
                    replicas=[self.node_id],
                    isr=[self.node_id],
                    leader=self.node_id,
                    leader_epoch=leader_epoch,
                    partition_epoch=9,
                )
            )
        for key, value in config.items():
            self.config(2, name, key.replace("_", "."), value)

    def config(self, resource_type: int, entity: str, name: str, value: str | None) -> None:
        """Set a config."""
        self.record(
            ConfigRecord(resource_type=resource_type, resource_name=entity, name=name, value=value)
        )

    def producer_ids(self, next_producer_id: int) -> None:
        """Mark the producer ids below a number as assigned."""
        self.record(
            ProducerIdsRecord(
                broker_id=self.node_id, broker_epoch=1, next_producer_id=next_producer_id
            )
        )

    # -- logs ---------------------------------------------------------------------------------

    def log(
        self,
        topic: str,
        partition: int,
        *segments: tuple[int, bytes] | bytes,
        uuid: Uuid | None = None,
        end_offset: int = 0,
    ) -> str:
        """Create a partition's directory with segments (base offset and bytes); return its path."""
        name = f"{topic}-{partition}"
        self.files.mkdir(f"{self.path}/{name}")
        for segment in segments:
            base_offset, data = segment if isinstance(segment, tuple) else (0, segment)
            for suffix, content in ((".log", data), (".index", b""), (".timeindex", b"")):
                self.write(f"{name}/{file_names.segment_file_name(base_offset, suffix)}", content)
        if uuid is not None:
            text = f"version: 0\ntopic_id: {uuid_to_text(uuid)}"
            self.write(f"{name}/partition.metadata", text.encode())
        self.offsets[TopicPartition(topic, partition)] = end_offset
        self.files.sync_dir(f"{self.path}/{name}")
        return f"{self.path}/{name}"

    def stop(self, *, clean: bool = True) -> None:
        """Write the files of a clean stop."""
        if self._kraft:
            self.files.mkdir(f"{self.path}/__cluster_metadata-0")
            log = control_batch(ControlType.LEADER_CHANGE, 0)
            if self.metadata:
                log += values_batch(self.metadata, 1)
            self.write("__cluster_metadata-0/00000000000000000000.log", log)
            self.write("__cluster_metadata-0/quorum-state", b"{}")
            self.files.sync_dir(f"{self.path}/__cluster_metadata-0")
        for name in (file_names.RECOVERY_POINT_CHECKPOINT, file_names.HIGH_WATERMARK_CHECKPOINT):
            checkpoint_files.write_offsets(self.files, f"{self.path}/{name}", self.offsets)
        if clean:
            clean_shutdown.write_clean_mark(self.files, self.path)
        self.files.sync_dir(self.path)
        self.files.sync_dir(self.path.rpartition("/")[0] or "/")
