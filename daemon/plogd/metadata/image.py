"""The state that results from Kafka's metadata records, and the records that change this state.

`MetadataImage` is the in-memory state of `EmbeddedStore`: `replay` applies one record, and
`records_for` returns the records for a change. security_image.py handles ACLs, quotas and SCRAM
users. This module does not access the log. A key's version is the offset of the last record that
changed the key. A snapshot does not contain this offset, so the keys that are loaded from it have
the offset of the last record that it replaces. Versions are compared only within one process.

A `RegisterBrokerRecord` means that the broker has restarted, so each partition that it leads gets a
new leader epoch; see docs/decisions/0002. Source: Kafka 4.0 ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from plog.types import Uuid
from plog.wire.internal.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from plogd.metadata import security_image
from plogd.metadata.store import (
    ABSENT,
    BrokerRegistration,
    Change,
    Endpoint,
    Key,
    PartitionValue,
    ProducerIdsValue,
    TopicValue,
)

# The numbers of Kafka's ConfigResource.Type and, below, SecurityProtocol.
RESOURCE_TYPE_IDS = {"topic": 2, "broker": 4}
_RESOURCE_TYPE_NAMES = {number: name for name, number in RESOURCE_TYPE_IDS.items()}
SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_SECURITY_PROTOCOL_NAMES = {number: name for name, number in SECURITY_PROTOCOL_IDS.items()}
_LEADER_UNCHANGED = -2  # NO_LEADER_CHANGE in Kafka's LeaderConstants.


# Frozen, because a copy of the image shares its entries.
@dataclass(frozen=True, slots=True)
class _Entry:
    value: Any
    version: int


class MetadataImage:
    """Keys with their values and versions; only `replay` changes them."""

    def __init__(self) -> None:
        # Grouped, because `load` examines a whole group: listing a few ACLs must not go through all
        # partitions of the cluster.
        self._entries: dict[str | int, dict[Key, _Entry]] = {}
        """The entries by the first element of the key."""
        self._unseen: set[Key] = set()
        """Topics whose value has not been read, so that it may be changed in place: copying it for
        each of thousands of partitions would take seconds."""
        # Records of partitions contain only the id of their topic.
        self._name_by_topic_id: dict[Uuid, str] = {}

    def get(self, key: Key) -> tuple[Any, int]:
        """Return value and version; (None, ABSENT) if the key is missing."""
        entry = self._entries.get(key[0], {}).get(key)
        # The caller may keep the value, so the next change must replace it with a copy.
        self._unseen.discard(key)
        return (None, ABSENT) if entry is None else (entry.value, entry.version)

    def load(self, prefix: Key) -> dict[Key, tuple[Any, int]]:
        """Return all keys that begin with `prefix`."""
        length = len(prefix)
        # The caller receives all values, so each must be copied before it changes.
        self._unseen.clear()
        return {
            key: (entry.value, entry.version)
            for key, entry in self._entries.get(prefix[0], {}).items()
            if key[:length] == prefix
        }

    @property
    def kinds(self) -> set[str | int]:
        """The first elements of all keys."""
        return {kind for kind, entries in self._entries.items() if entries}

    def items(self, kind: str) -> Iterator[tuple[Key, Any]]:
        """Yield the keys that begin with `kind`, and their values.

        The image must not change during the iteration, and the caller must not keep the values of
        topics: later records may change them.
        """
        for key, entry in self._entries.get(kind, {}).items():
            yield key, entry.value

    def copy(self) -> MetadataImage:
        """Return an independent image with the same content.

        It shares the values, so this takes about 0.5 ms for 10,000 partitions.
        """
        # Both images refer to the same values, so neither may change a value in place.
        self._unseen.clear()
        copy = MetadataImage()
        copy._entries = {kind: entries.copy() for kind, entries in self._entries.items()}
        copy._name_by_topic_id = self._name_by_topic_id.copy()
        return copy

    def replay(self, record: MetadataRecord, offset: int) -> list[Key]:
        """Apply one record; return the changed keys. Raises ValueError if it cannot be applied."""
        match record:
            case TopicRecord():
                return self._replay_topic(record, offset)
            case PartitionRecord():
                return self._replay_partition(record, offset)
            case PartitionChangeRecord():
                return self._replay_partition_change(record, offset)
            case RemoveTopicRecord():
                return self._replay_remove_topic(record)
            case ConfigRecord():
                return self._replay_config(record, offset)
            case ProducerIdsRecord():
                value = ProducerIdsValue(
                    broker_id=record.broker_id,
                    broker_epoch=record.broker_epoch,
                    next_producer_id=record.next_producer_id,
                )
                return [self._put(("producer_ids",), value, offset)]
            case RegisterBrokerRecord():
                return self._replay_register_broker(record, offset)
            case FeatureLevelRecord():
                return [self._put(("feature", record.name), record.feature_level, offset)]
            case BrokerRegistrationChangeRecord():
                return []  # A single broker ignores fencing and controlled shutdown.
            case _:
                return [self._set(*security_image.effect_of(record, self._value), offset)]

    def _put(self, key: Key, value: Any, version: int) -> Key:
        self._entries.setdefault(key[0], {})[key] = _Entry(value, version)
        return key

    def _set(self, key: Key, value: Any, version: int) -> Key:
        """Set the value of a key, or remove the key if `value` is None."""
        if value is not None:
            return self._put(key, value, version)
        self._entries.get(key[0], {}).pop(key, None)
        return key

    def _value(self, key: Key) -> Any:
        return self.get(key)[0]

    def _topic_name(self, topic_id: Uuid) -> str:
        name = self._name_by_topic_id.get(topic_id)
        if name is None:
            raise ValueError(f"unknown topic id {topic_id.hex()}")
        return name

    def _replay_topic(self, record: TopicRecord, offset: int) -> list[Key]:
        self._name_by_topic_id[record.topic_id] = record.name
        # A separate record for each partition follows.
        value = TopicValue(topic_id=record.topic_id, assignments={})
        return [self._put(("topic", record.name), value, offset)]

    def _replay_partition(self, record: PartitionRecord, offset: int) -> list[Key]:
        name, number = self._topic_name(record.topic_id), record.partition_id
        topic_key = self._put_replicas(name, number, record.replicas, offset)
        self._put_reassignment(topic_key, record)
        value = PartitionValue(
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            isr=tuple(record.isr),
            partition_epoch=record.partition_epoch,
        )
        return [topic_key, self._put(("partition", name, number), value, offset)]

    def _put_replicas(self, name: str, number: int, replicas: Iterable[int], offset: int) -> Key:
        """Set the replicas of a partition. Values that `get` has returned stay unchanged."""
        key: Key = ("topic", name)
        topic: TopicValue = self._entries["topic"][key].value
        if key in self._unseen:
            assignments = cast(dict[int, tuple[int, ...]], topic.assignments)
        else:
            assignments = dict(topic.assignments)
            topic = replace(topic, assignments=assignments)
            self._unseen.add(key)
        assignments[number] = tuple(replicas)
        return self._put(key, topic, offset)

    def _replay_partition_change(self, record: PartitionChangeRecord, offset: int) -> list[Key]:
        name, number = self._topic_name(record.topic_id), record.partition_id
        entry = self._entries["partition"][("partition", name, number)]
        old: PartitionValue = entry.value
        # As in Kafka's PartitionRegistration.merge: an election starts a new leader epoch, and any
        # change a new partition epoch.
        elected = record.leader != _LEADER_UNCHANGED
        value = PartitionValue(
            leader=record.leader if elected else old.leader,
            leader_epoch=old.leader_epoch + elected,
            isr=old.isr if record.isr is None else tuple(record.isr),
            partition_epoch=old.partition_epoch + 1,
        )
        changed = [self._put(("partition", name, number), value, offset)]
        reassigned = (record.replicas, record.adding_replicas, record.removing_replicas)
        if any(replicas is not None for replicas in reassigned):
            topic: TopicValue = self._entries["topic"][("topic", name)].value
            replicas = topic.assignments[number] if record.replicas is None else record.replicas
            changed.append(self._put_replicas(name, number, replicas, offset))
            self._put_reassignment(("topic", name), record)
        return changed

    def _put_reassignment(
        self, topic_key: Key, record: PartitionRecord | PartitionChangeRecord
    ) -> None:
        """Set the replicas that are being added to and removed from a partition.

        The caller has just put the topic's value, so it may be replaced.
        """
        entry = self._entries["topic"][topic_key]
        changes = {}
        for name in ("adding_replicas", "removing_replicas"):
            replicas: list[int] | None = getattr(record, name)
            old: Mapping[int, tuple[int, ...]] = getattr(entry.value, name)
            if replicas is None or tuple(replicas) == old.get(record.partition_id, ()):
                continue
            kept = {n: ids for n, ids in old.items() if n != record.partition_id}
            changes[name] = kept | ({record.partition_id: tuple(replicas)} if replicas else {})
        if changes:
            self._entries["topic"][topic_key] = _Entry(
                replace(entry.value, **changes), entry.version
            )

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> list[Key]:
        name = self._topic_name(record.topic_id)
        # Later records that refer to this topic are errors, and abort the startup.
        del self._name_by_topic_id[record.topic_id]
        topic: TopicValue = self._entries["topic"].pop(("topic", name)).value
        removed: list[Key] = [("topic", name)]
        for number in topic.assignments:
            del self._entries["partition"][("partition", name, number)]
            removed.append(("partition", name, number))
        config_key: Key = ("config", "topic", name)
        if self._entries.get("config", {}).pop(config_key, None) is not None:
            removed.append(config_key)
        return removed

    def _replay_config(self, record: ConfigRecord, offset: int) -> list[Key]:
        type_name = _RESOURCE_TYPE_NAMES.get(record.resource_type)
        if type_name is None:
            # plog writes only these types, so the record is not from this version of plog.
            raise ValueError(f"unknown resource type {record.resource_type}")
        key: Key = ("config", type_name, record.resource_name)
        # Copy the settings, because readers may hold the previous value.
        settings = dict(self.get(key)[0] or {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            return [self._put(key, settings, offset)]
        self._entries.get("config", {}).pop(key, None)
        return [key]

    def _replay_register_broker(self, record: RegisterBrokerRecord, offset: int) -> list[Key]:
        value = BrokerRegistration(
            broker_id=record.broker_id,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(
                Endpoint(
                    name=end_point.name,
                    host=end_point.host,
                    port=end_point.port,
                    security_protocol=_security_protocol(end_point.security_protocol),
                )
                for end_point in record.end_points
            ),
            rack=record.rack,
            broker_epoch=record.broker_epoch,
        )
        changed = [self._put(("broker", record.broker_id), value, offset)]
        # This record replaces a PartitionChangeRecord for each partition; otherwise, each startup
        # would add as many records to the log as there are partitions (docs/decisions/0002).
        for key, entry in self._entries.get("partition", {}).items():
            partition: PartitionValue = entry.value
            if partition.leader == record.broker_id:
                restarted = replace(
                    partition,
                    leader_epoch=partition.leader_epoch + 1,
                    partition_epoch=partition.partition_epoch + 1,
                )
                # The key exists already, so the iteration can continue.
                changed.append(self._put(key, restarted, offset))
        return changed

    # -- records of a change -------------------------------------------------------------------

    def records_for(
        self, change: Change, new_topics: Mapping[str, TopicValue]
    ) -> Sequence[MetadataRecord]:
        """Return the records that apply `change`; none if it has no effect.

        `new_topics` contains the topics that earlier changes in the same group add.
        """
        old, _ = self.get(change.key)
        match change.key:
            case ("topic", str(name)):
                if change.value is None:
                    # This record also removes the topic's partitions and settings.
                    return [] if old is None else [RemoveTopicRecord(topic_id=old.topic_id)]
                if old is not None:
                    return _records_of_new_assignment(name, old, change.value)
                return [TopicRecord(name=name, topic_id=change.value.topic_id)]
            case ("partition", str(name), int(number)):
                # A new topic is written together with its partitions, so it is not in the image
                # yet.
                topic = new_topics.get(name) or self.get(("topic", name))[0]
                return [_partition_record(topic, number, change.value)]
            case ("config", str(type_name), str(entity)):
                return _config_records(type_name, entity, old or {}, change.value or {})
            case ("delete_topic", str()):
                # A single record removes a topic, so no deletion is ever pending.
                return []
            case ("producer_ids",):
                value: ProducerIdsValue = change.value
                return [
                    ProducerIdsRecord(
                        broker_id=value.broker_id,
                        broker_epoch=value.broker_epoch,
                        next_producer_id=value.next_producer_id,
                    )
                ]
            case _:
                return security_image.records_for(change, old)


def _security_protocol(number: int) -> str:
    name = _SECURITY_PROTOCOL_NAMES.get(number)
    if name is None:
        raise ValueError(f"unknown security protocol {number}")
    return name


def _partition_record(topic: TopicValue, number: int, value: PartitionValue) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic.topic_id,
        replicas=list(topic.assignments[number]),
        adding_replicas=list(topic.adding_replicas.get(number, ())),
        removing_replicas=list(topic.removing_replicas.get(number, ())),
        isr=list(value.isr),
        leader=value.leader,
        leader_epoch=value.leader_epoch,
        partition_epoch=value.partition_epoch,
    )


def _records_of_new_assignment(
    name: str, old: TopicValue, new: TopicValue
) -> Sequence[MetadataRecord]:
    """Return the records for partitions with other replicas.

    New partitions need no records here, because the changes to their own keys produce them.
    """
    if new.topic_id != old.topic_id or not new.assignments.keys() >= old.assignments.keys():
        raise ValueError(f"cannot change topic {name}: its id and its partitions must remain")
    return [
        PartitionChangeRecord(
            partition_id=number,
            topic_id=new.topic_id,
            replicas=list(new.assignments[number]),
            adding_replicas=list(new.adding_replicas.get(number, ())),
            removing_replicas=list(new.removing_replicas.get(number, ())),
        )
        for number in old.assignments
        if _replicas(old, number) != _replicas(new, number)
    ]


def _replicas(topic: TopicValue, number: int) -> tuple[tuple[int, ...], ...]:
    """Return the replicas of a partition, and those that a reassignment adds and removes."""
    return (
        topic.assignments[number],
        topic.adding_replicas.get(number, ()),
        topic.removing_replicas.get(number, ()),
    )


def _config_records(
    type_name: str, entity: str, old: Mapping[str, str], new: Mapping[str, str]
) -> list[MetadataRecord]:
    type_id = RESOURCE_TYPE_IDS[type_name]
    changed: dict[str, str | None] = {name: None for name in old if name not in new}
    changed.update({name: value for name, value in new.items() if old.get(name) != value})
    return [
        ConfigRecord(resource_type=type_id, resource_name=entity, name=name, value=value)
        # Sorted, so that the same change always produces the same records.
        for name, value in sorted(changed.items())
    ]


def registration_record(registration: BrokerRegistration, offset: int) -> RegisterBrokerRecord:
    """Return the record that registers a broker at `offset`, which becomes its broker epoch."""
    return RegisterBrokerRecord(
        broker_id=registration.broker_id,
        incarnation_id=registration.incarnation_id,
        broker_epoch=offset,
        end_points=[
            BrokerEndpoint(
                name=endpoint.name,
                host=endpoint.host,
                port=endpoint.port,
                security_protocol=SECURITY_PROTOCOL_IDS[endpoint.security_protocol],
            )
            for endpoint in registration.endpoints
        ],
        rack=registration.rack,
        # Kafka's controller unfences a broker later, with another record.
        fenced=False,
    )
