"""Records of `__consumer_offsets`: committed offsets and group metadata.

The key and the value of a log record are separate messages, each preceded by its version, an int16.
The key's version is the type of the record: 0 and 1 are committed offsets, 2 is the metadata of a
classic group. Higher versions belong to group protocols that this broker does not serve.

Source: Kafka 4.3 group-coordinator messages, CoordinatorRecordSerde, GroupCoordinatorRecordHelpers.

  OffsetCommitValue    1 expire timestamp (that version only)   3 leader epoch (KIP-320)
                       4 flexible, topic id
  GroupMetadataValue   1 rebalance timeout   2 time of the state (KIP-211)
                       3 group instance id (KIP-345)   4 flexible
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias, TypeVar

from plog.wire.schema import Buffer, Message, Struct, WireError, field, int32, int64, uuid

_VERSION: Final = struct.Struct(">h")
_OFFSET_COMMIT_KEY_VERSION: Final = 1
_GROUP_METADATA_KEY_VERSION: Final = 2
# The highest version that is not flexible: as in Kafka, older releases can read it after a
# downgrade.
_VALUE_VERSION: Final = 3
_VALUE_VERSION_WITH_EXPIRY: Final = 1
NO_TIMESTAMP: Final = -1


class OffsetCommitKey(Message, versions="0-1"):
    """The group and partition of a committed offset."""

    group: str = field()
    topic: str = field()
    partition: int32 = field()


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """A committed offset. Timestamps are wall-clock ms; -1 means none."""

    offset: int64 = field()
    leader_epoch: int32 = field("3+", default=-1, ignorable=True)
    metadata: str = field()
    commit_timestamp: int64 = field()
    expire_timestamp: int64 = field("1", default=NO_TIMESTAMP, ignorable=True)
    # Tells a recreated topic from the topic whose offset was committed.
    topic_id: uuid = field("4+", tag=0, ignorable=True)


class GroupMetadataKey(Message, versions="2"):
    """The group of a metadata record."""

    group: str = field()


class MemberMetadata(Struct):
    """A member of a classic group; timeouts are in ms."""

    member_id: str = field()
    group_instance_id: str | None = field("3+", default=None, ignorable=True)
    client_id: str = field()
    client_host: str = field()
    rebalance_timeout: int32 = field("1+", default=-1, ignorable=True)
    session_timeout: int32 = field()
    subscription: bytes = field()
    assignment: bytes = field()


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    """A generation of a classic group."""

    protocol_type: str = field()
    generation: int32 = field()
    protocol: str | None = field()
    leader: str | None = field()
    current_state_timestamp: int64 = field("2+", default=NO_TIMESTAMP, ignorable=True)
    members: list[MemberMetadata] = field()


GROUP_MESSAGES: Final[tuple[type[Message], ...]] = (
    OffsetCommitKey,
    OffsetCommitValue,
    GroupMetadataKey,
    GroupMetadataValue,
)

GroupKey: TypeAlias = OffsetCommitKey | GroupMetadataKey
GroupValue: TypeAlias = OffsetCommitValue | GroupMetadataValue

M = TypeVar("M", bound=Message)


class GroupRecord(NamedTuple):
    """A decoded record; `value` is None for a tombstone."""

    key: GroupKey
    value: GroupValue | None


def encode_key(key: Message) -> bytes:
    """Encode the key of a log record."""
    is_offset = isinstance(key, OffsetCommitKey)
    version = _OFFSET_COMMIT_KEY_VERSION if is_offset else _GROUP_METADATA_KEY_VERSION
    return _VERSION.pack(version) + key.encode(version)


def encode_value(value: Message | None) -> bytes | None:
    """Encode the value of a log record in the version that Kafka writes, or None for a tombstone.

    Raises WireError for a value that the format cannot represent, such as a string of more than
    32,767 bytes.
    """
    if value is None:
        return None
    version = _VALUE_VERSION
    # Only version 1 has this field. As in Kafka, the leader epoch is lost, because version 1 does
    # not contain it.
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != NO_TIMESTAMP:
        version = _VALUE_VERSION_WITH_EXPIRY
    return _VERSION.pack(version) + value.encode(version)


def decode(key: Buffer | None, value: Buffer | None) -> GroupRecord | None:
    """Decode the key and value of a log record; return None for a key of an unknown type.

    Raises WireError for invalid bytes, or for an unknown version of the value.
    """
    key_version, key_bytes = _split("key", key)
    match key_version:
        case 0 | 1:
            return GroupRecord(
                _whole(OffsetCommitKey, key_bytes, key_version), _value(OffsetCommitValue, value)
            )
        case 2:
            return GroupRecord(
                _whole(GroupMetadataKey, key_bytes, key_version), _value(GroupMetadataValue, value)
            )
        # A log imported from Kafka can contain records of newer group protocols.
        case _:
            return None


def _value(message: type[M], data: Buffer | None) -> M | None:
    if data is None:
        return None
    version, rest = _split("value", data)
    if not message.min_version <= version <= message.max_version:
        raise WireError(f"{message.__name__} has no version {version}")
    return _whole(message, rest, version)


def _split(what: str, data: Buffer | None) -> tuple[int, memoryview]:
    """Return the version at the start of `data`, and the bytes after it."""
    view = memoryview(data or b"")
    if len(view) < _VERSION.size:
        raise WireError(f"a {what} of {len(view)} bytes has no version")
    return _VERSION.unpack_from(view)[0], view[_VERSION.size :]


def _whole(message: type[M], data: memoryview, version: int) -> M:
    """Return the message in `data`, which it must fill completely."""
    decoded, size = message.decode_prefix(data, version)
    # All fields of this version are known, so extra bytes mean that the record is corrupt.
    if size != len(data):
        raise WireError(f"{len(data) - size} extra bytes follow the {message.__name__}")
    return decoded
