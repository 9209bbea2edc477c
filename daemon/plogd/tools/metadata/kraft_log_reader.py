"""Read Kafka's own `__cluster_metadata-0`: the newest snapshot, and the log after it.

This module is pure and works on bytes; import_source.py reads the files. A snapshot is a file of
record batches between two control records, the header and the footer, and its name contains its end
offset. Records of types that an import does not need are skipped, and records that describe
entities that plog cannot adopt are counted. The records of a metadata transaction (KIP-866,
KIP-868) take effect at its end record.

Source: Kafka 4.3 metadata/src/main/resources (metadata.version up to 4.3), MetadataDelta,
MetadataBatchLoader; KIP-630 (snapshots).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from plog.errors import PlogError
from plog.records.batch import BatchHeader, CorruptBatch, crc_is_valid, iter_batches
from plog.records.codec import Record
from plog.records.control import ControlType, decode_control_key
from plog.records.reader import read_records
from plog.types import Uuid
from plog.wire.internal.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
)
from plog.wire.primitives import WireError, decode_varint
from plogd.tools.storage.cluster_state import ClusterState, KafkaPartition, KafkaTopic

_REMEDY = "start Kafka once more and stop it cleanly"
_TOPIC, _BROKER = 2, 4
_NO_LEADER_CHANGE = -2  # As in Kafka's LeaderConstants.

# Record types are the apiKey numbers in Kafka's definitions.
_USED = {2, 3, 4, 5, 9, 15}
"""Topics, partitions, settings, partition changes, removed topics, producer id blocks."""
_TRANSACTION_BEGIN, _TRANSACTION_END, _TRANSACTION_ABORT = 23, 24, 25
_ZK_MIGRATION = 21
_NOT_IMPORTED = {
    10: "records of delegation tokens",
    11: "records of SCRAM users",
    14: "records of client quotas",
    18: "ACLs",
}
_ACL_REMOVED = 19
_CONFIGS_NOT_IMPORTED = {
    8: "settings of broker loggers",
    16: "client metrics subscriptions",
    32: "settings of groups",
}
_IGNORED = {0, 1, 7, 8, 12, 17, 20, 22, 26, 27}
"""Broker and controller registrations, features, no-op records, removals of counted entities."""
_CLEAR_ELIGIBLE = 28


class UnreadableMetadata(PlogError):
    """Kafka's metadata log cannot be read; the message contains the place and the remedy."""


def snapshot_values(data: bytes) -> list[bytes]:
    """Return the encoded records of a snapshot. Raises UnreadableMetadata if it is incomplete."""
    values: list[bytes] = []
    footer = False
    for header, records in _batches(data, "a metadata snapshot"):
        if header.is_control:
            # Kafka writes the footer last, so a snapshot without a footer was not written
            # completely.
            footer = decode_control_key(records[0].key) is ControlType.SNAPSHOT_FOOTER
        else:
            # A record without a value is invalid, and is reported when it is decoded.
            values += [record.value or b"" for record in records]
    if not footer:
        raise UnreadableMetadata(
            f"cannot read a metadata snapshot: it is incomplete and has no footer; {_REMEDY}"
        )
    return values


def log_values(segments: Sequence[bytes], from_offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and value of each metadata record, starting at `from_offset`.

    A truncated last batch is ignored. Raises UnreadableMetadata if records are missing or
    damaged.
    """
    expected: int | None = None
    for segment in segments:
        for header, records in _batches(segment, "the metadata log"):
            # A gap after the snapshot would mean that segments are missing.
            begins_late = expected is None and header.base_offset > from_offset
            if begins_late or expected not in (None, header.base_offset):
                raise UnreadableMetadata(
                    f"cannot read the metadata log: it continues at offset {header.base_offset} "
                    f"instead of {from_offset if expected is None else expected}; {_REMEDY}"
                )
            expected = header.next_offset
            if not header.is_control:
                yield from (
                    (record.offset, record.value or b"")
                    for record in records
                    # The snapshot contains the earlier records of its segment.
                    if record.offset >= from_offset
                )


def _batches(data: bytes, what: str) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yield the header and the records of each complete batch."""
    try:
        for position, header in iter_batches(data):
            if not crc_is_valid(data, position, header):
                raise CorruptBatch(f"the batch at offset {header.base_offset} fails its checksum")
            yield header, read_records(data, position, header)
    except CorruptBatch as error:
        raise UnreadableMetadata(f"cannot read {what}: {error}; {_REMEDY}") from error


def read_state(values: Iterable[tuple[int, bytes]]) -> ClusterState:
    """Return the state after all records. Raises UnreadableMetadata if one cannot be decoded."""
    reader = _Reader()
    for offset, value in values:
        try:
            reader.add(value)
        # KeyError means that a record refers to an unknown topic or partition.
        except (WireError, KeyError) as error:
            raise UnreadableMetadata(
                f"cannot decode the metadata record at offset {offset}: {error!r}; Kafka "
                "versions up to metadata.version 4.3 are supported"
            ) from error
    return reader.finish()


def _record_key(value: bytes) -> int:
    view = memoryview(value)
    try:
        frame_version, position = decode_varint(view, 0)
        key, _ = decode_varint(view, position)
    except IndexError:
        raise WireError(f"a record of {len(value)} bytes is too short") from None
    if frame_version != 1:
        raise WireError(f"unknown frame version {frame_version}")
    return key


# `MetadataImage` supports only the records that plog writes, and starts a new leader epoch whenever
# a broker starts (decision 0002), unlike Kafka, so this reader does not use it.
class _Reader:
    def __init__(self) -> None:
        self._state = ClusterState()
        self._names: dict[Uuid, str] = {}
        self._counts: Counter[str] = Counter()
        self._transaction: list[bytes] | None = None

    def add(self, value: bytes) -> None:
        """Apply the next record, or keep it until its metadata transaction ends."""
        key = _record_key(value)
        if key == _TRANSACTION_BEGIN:
            self._transaction = []
        elif key == _TRANSACTION_ABORT:
            self._transaction = None
        elif key == _TRANSACTION_END:
            pending, self._transaction = self._transaction or [], None
            for each in pending:
                self._apply(_record_key(each), each)
        elif self._transaction is not None:
            self._transaction.append(value)
        else:
            self._apply(key, value)

    def _apply(self, key: int, value: bytes) -> None:
        if key in _USED:
            self._replay(decode_metadata_record(value))
        elif key in _NOT_IMPORTED:
            # An upper bound for the number of entities, because changes are counted, too.
            self._counts[_NOT_IMPORTED[key]] += 1
        elif key == _ACL_REMOVED:
            # Each removal contains the id of exactly one ACL.
            self._counts["ACLs"] -= 1
        elif key == _CLEAR_ELIGIBLE:
            # The record may name a single topic. Clearing all topics can at worst make a complete
            # replica count as incomplete, so its topic is reported and not imported.
            for topic in self._state.topics.values():
                for partition in topic.partitions.values():
                    partition.eligible = ()
        elif key == _ZK_MIGRATION:
            # Brokers in ZooKeeper mode may have written the logs, in an old message format.
            self._state.may_hold_old_formats = True
        elif key not in _IGNORED:
            self._counts[f"metadata records of unknown type {key}"] += 1

    def finish(self) -> ClusterState:
        """Return the state, without the records of an unfinished metadata transaction."""
        # Adding a Counter drops counts of 0, such as that of ACLs that were all removed.
        self._state.not_imported += self._counts
        return self._state

    def _replay(self, record: MetadataRecord) -> None:
        state = self._state
        match record:
            case TopicRecord():
                self._names[record.topic_id] = record.name
                state.topics[record.name] = KafkaTopic(name=record.name, topic_id=record.topic_id)
            case PartitionRecord():
                self._partitions(record.topic_id)[record.partition_id] = KafkaPartition(
                    replicas=tuple(record.replicas),
                    isr=tuple(record.isr),
                    leader_epoch=record.leader_epoch,
                    eligible=tuple(record.eligible_leader_replicas or ()),
                )
            case PartitionChangeRecord():
                self._change_partition(record)
            case RemoveTopicRecord():
                name = self._names.pop(record.topic_id)
                del state.topics[name]
                # Kafka removes the settings of a deleted topic without further records.
                state.topic_configs.pop(name, None)
            case ConfigRecord():
                self._replay_config(record)
            case ProducerIdsRecord():
                state.next_producer_id = record.next_producer_id

    def _partitions(self, topic_id: Uuid) -> dict[int, KafkaPartition]:
        return self._state.topics[self._names[topic_id]].partitions

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        partition = self._partitions(record.topic_id)[record.partition_id]
        if record.replicas is not None:
            partition.replicas = tuple(record.replicas)
        if record.isr is not None:
            partition.isr = tuple(record.isr)
        if record.eligible_leader_replicas is not None:
            partition.eligible = tuple(record.eligible_leader_replicas)
        if record.leader != _NO_LEADER_CHANGE:
            # The record contains no epoch: Kafka increments it for each record that sets a leader.
            partition.leader_epoch += 1

    def _replay_config(self, record: ConfigRecord) -> None:
        if record.resource_type == _TOPIC:
            configs = self._state.topic_configs
        elif record.resource_type == _BROKER:
            configs = self._state.broker_configs
        else:
            what = _CONFIGS_NOT_IMPORTED.get(record.resource_type, "settings of unknown resources")
            # A removed setting is not lost by the import, so it does not count.
            self._state.not_imported[what] += record.value is not None
            return
        settings = configs.setdefault(record.resource_name, {})
        if record.value is None:
            # A record without a value removes the setting.
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if not settings:
            del configs[record.resource_name]
