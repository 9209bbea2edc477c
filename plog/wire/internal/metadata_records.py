"""Records of `__cluster_metadata-0`: changes to brokers, topics, settings and users.

These are the records of Kafka's KRaft metadata log that a plog broker needs. The value of a log
record consists of three unsigned varints (frame version 1, record key, record version) and the
message. The keys are unrelated to `ApiKey`. A broker that replays the log must understand every
record, so an unknown record is an error. Source: Kafka 4.3 metadata/src/main/resources,
AbstractApiMessageSerde.

  PartitionRecord, PartitionChangeRecord    1 directories (KIP-858)   2 eligible leaders (KIP-966)
  RegisterBrokerRecord           1 controlled shutdown   2 migration from ZooKeeper   3 directories
                                 4 cordoned directories (KIP-1066)
  BrokerRegistrationChangeRecord 1 controlled shutdown   2 directories   3 cordoned directories
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from plog.wire.primitives import decode_varint, encode_varint
from plog.wire.schema import (
    Buffer,
    Message,
    Struct,
    WireError,
    field,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint16,
    uuid,
)

# AbstractApiMessageSerde writes this version, and rejects all others.
_FRAME_VERSION = 1


class MetadataRecord(Message):
    """A metadata log record, which describes one change."""

    record_key: ClassVar[int]

    def __init_subclass__(cls, *, record_key: int, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.record_key = record_key


class BrokerEndpoint(Struct):
    """A listener of the broker."""

    name: str = field()
    host: str = field()
    port: uint16 = field()
    security_protocol: int16 = field()


class BrokerFeature(Struct):
    """A feature, and the levels that the broker supports."""

    name: str = field()
    min_supported_version: int16 = field()
    max_supported_version: int16 = field()


class RegisterBrokerRecord(MetadataRecord, record_key=0, versions="0-4", flexible="0+"):
    """A broker was registered, which it requests when it starts."""

    broker_id: int32 = field()
    # Only brokers up to Kafka 3.9 set it, during the migration to KRaft (KIP-866).
    is_migrating_zk_broker: bool = field("2+")
    incarnation_id: uuid = field()
    broker_epoch: int64 = field()
    end_points: list[BrokerEndpoint] = field()
    features: list[BrokerFeature] = field()
    rack: str | None = field()
    # A Kafka broker stays fenced until it has caught up with the metadata (KIP-631).
    fenced: bool = field(default=True)
    in_controlled_shutdown: bool = field("1+")
    log_dirs: list[uuid] = field("3+", tag=0)
    cordoned_log_dirs: list[uuid] | None = field("4+", tag=1, default=None)


class TopicRecord(MetadataRecord, record_key=2, versions="0", flexible="0+"):
    """A topic was created. The records for its partitions follow."""

    name: str = field()
    topic_id: uuid = field()


class PartitionRecord(MetadataRecord, record_key=3, versions="0-2", flexible="0+"):
    """The complete state of a new partition."""

    partition_id: int32 = field(default=-1)
    topic_id: uuid = field()
    replicas: list[int32] = field()
    isr: list[int32] = field()
    removing_replicas: list[int32] = field()
    adding_replicas: list[int32] = field()
    leader: int32 = field(default=-1)
    leader_recovery_state: int8 = field(tag=0)
    leader_epoch: int32 = field(default=-1)
    partition_epoch: int32 = field(default=-1)
    directories: list[uuid] = field("1+")
    eligible_leader_replicas: list[int32] | None = field("2+", tag=1, default=None)
    last_known_elr: list[int32] | None = field("2+", tag=2, default=None)


class ConfigRecord(MetadataRecord, record_key=4, versions="0", flexible="0+"):
    """A setting was changed, or deleted if the value is null."""

    resource_type: int8 = field()
    resource_name: str = field()
    name: str = field()
    value: str | None = field()


class PartitionChangeRecord(MetadataRecord, record_key=5, versions="0-2", flexible="0+"):
    """A partition was changed; unchanged fields are null, or -2 for the leader."""

    partition_id: int32 = field(default=-1)
    topic_id: uuid = field()
    isr: list[int32] | None = field(tag=0, default=None)
    leader: int32 = field(tag=1, default=-2)
    replicas: list[int32] | None = field(tag=2, default=None)
    removing_replicas: list[int32] | None = field(tag=3, default=None)
    adding_replicas: list[int32] | None = field(tag=4, default=None)
    leader_recovery_state: int8 = field(tag=5, default=-1)
    # The order is that of Kafka's declaration, which as_json keeps. On the wire, tags are sorted.
    directories: list[uuid] | None = field("1+", tag=8, default=None)
    eligible_leader_replicas: list[int32] | None = field("2+", tag=6, default=None)
    last_known_elr: list[int32] | None = field("2+", tag=7, default=None)


class RemoveTopicRecord(MetadataRecord, record_key=9, versions="0", flexible="0+"):
    """A topic and all its partitions were deleted."""

    topic_id: uuid = field()


class UserScramCredentialRecord(MetadataRecord, record_key=11, versions="0", flexible="0+"):
    """A user's credential for one mechanism."""

    name: str = field()
    mechanism: int8 = field()
    salt: bytes = field()
    stored_key: bytes = field()
    server_key: bytes = field()
    iterations: int32 = field()

    # The keys are secret, and the repr of a record may be logged.
    def __repr__(self) -> str:
        return f"UserScramCredentialRecord(name={self.name!r}, mechanism={self.mechanism}, …)"


class FeatureLevelRecord(MetadataRecord, record_key=12, versions="0", flexible="0+"):
    """A feature was finalized at a level; 0 disables it."""

    name: str = field()
    feature_level: int16 = field()


class QuotaEntityData(Struct):
    """A component of a quota entity; a null name means the default."""

    entity_type: str = field()
    entity_name: str | None = field()


class ClientQuotaRecord(MetadataRecord, record_key=14, versions="0", flexible="0+"):
    """A quota was set or removed."""

    entity: list[QuotaEntityData] = field()
    key: str = field()
    value: float64 = field()
    remove: bool = field()


class ProducerIdsRecord(MetadataRecord, record_key=15, versions="0", flexible="0+"):
    """Producer ids below ``next_producer_id`` were allocated."""

    broker_id: int32 = field()
    broker_epoch: int64 = field(default=-1)
    next_producer_id: int64 = field()


class BrokerRegistrationChangeRecord(MetadataRecord, record_key=17, versions="0-3", flexible="0+"):
    """A broker's registration was changed: 1 sets a flag, -1 clears it, 0 leaves it unchanged."""

    broker_id: int32 = field()
    broker_epoch: int64 = field()
    fenced: int8 = field(tag=0)
    in_controlled_shutdown: int8 = field("1+", tag=1)
    log_dirs: list[uuid] = field("2+", tag=2)
    cordoned_log_dirs: list[uuid] | None = field("3+", tag=3, default=None)


class AccessControlEntryRecord(MetadataRecord, record_key=18, versions="0", flexible="0+"):
    """An ACL was created."""

    id: uuid = field()
    resource_type: int8 = field()
    resource_name: str = field()
    pattern_type: int8 = field()
    principal: str = field()
    host: str = field()
    operation: int8 = field()
    permission_type: int8 = field()


class RemoveAccessControlEntryRecord(MetadataRecord, record_key=19, versions="0", flexible="0+"):
    """An ACL was deleted."""

    id: uuid = field()


class RemoveUserScramCredentialRecord(MetadataRecord, record_key=22, versions="0", flexible="0+"):
    """A user's credential for one mechanism was deleted."""

    name: str = field()
    mechanism: int8 = field()


METADATA_RECORDS: tuple[type[MetadataRecord], ...] = (
    RegisterBrokerRecord,
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    UserScramCredentialRecord,
    FeatureLevelRecord,
    ClientQuotaRecord,
    ProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
)
_RECORD_BY_KEY = {record.record_key: record for record in METADATA_RECORDS}


def encode_metadata_record(record: MetadataRecord, version: int) -> bytes:
    """Encode `record` as the value of a log record."""
    frame = (_FRAME_VERSION, record.record_key, version)
    return b"".join(map(encode_varint, frame)) + record.encode(version)


def decode_metadata_record(data: Buffer) -> MetadataRecord:
    """Decode the value of a log record. Raises WireError for an unknown record."""
    return decode_known_record(data, _RECORD_BY_KEY)[0]


def decode_known_record(
    data: Buffer, record_by_key: Mapping[int, type[MetadataRecord]]
) -> tuple[MetadataRecord, int]:
    """Decode a record of a type in `record_by_key`; return it and its version.

    Raises WireError for records of other types.
    """
    view = memoryview(data)
    try:
        frame_version, position = decode_varint(view, 0)
        key, position = decode_varint(view, position)
        version, position = decode_varint(view, position)
    except IndexError:
        raise WireError(f"a metadata record of {len(view)} bytes is truncated") from None
    # The caller selects the types, because tools also decode records that a broker rejects.
    record = record_by_key.get(key)
    if frame_version != _FRAME_VERSION or record is None:
        raise WireError(f"unknown metadata record: key {key}, frame version {frame_version}")
    if not record.min_version <= version <= record.max_version:
        raise WireError(f"{record.__name__} has no version {version}")
    decoded, size = record.decode_prefix(view[position:], version)
    # All fields of this version are known, so extra bytes mean that the record is corrupt.
    if position + size != len(view):
        raise WireError(f"{len(view) - position - size} extra bytes follow the {record.__name__}")
    return decoded, version
