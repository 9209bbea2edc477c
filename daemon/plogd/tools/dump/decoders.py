"""Decoders for ``plog dump-log``, which turn a record's key and value into text.

For an ordinary topic, the user selects a decoder by the name of the corresponding Kafka class.
Records of internal topics become the JSON that Kafka's tool prints. As in Kafka's tool, a record
that cannot be decoded produces an error line and does not end the dump.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from plog.cli.options import UsageError
from plog.errors import PlogError
from plog.records.codec import Record
from plog.wire.as_json import Json, as_json, compact_json
from plog.wire.internal.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from plog.wire.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from plog.wire.internal.kraft_records import KNOWN_RECORDS
from plog.wire.internal.metadata_records import decode_known_record
from plog.wire.internal.newer_group_records import NEWER_GROUP_RECORDS
from plog.wire.internal.share_records import SHARE_RECORDS
from plog.wire.internal.transaction_records import TransactionLogKey, TransactionLogValue
from plog.wire.primitives import WireError
from plog.wire.schema import Message
from plogd.tools.dump.log_file import Decode
from plogd.tools.dump.remote_log_records import remote_log_text

STRING_DECODER: Final = "org.apache.kafka.tools.api.StringDecoder"
_VERSION_BYTES = 2

_CLASSES: Final[Mapping[str, Callable[[bytes], str]]] = {
    "StringDecoder": lambda data: data.decode("utf-8", "replace"),
    # Like Java's ByteBuffer, this ignores bytes after the number.
    "IntegerDecoder": lambda data: str(int.from_bytes(data[:4], "big", signed=True)),
    "LongDecoder": lambda data: str(int.from_bytes(data[:8], "big", signed=True)),
    # Java's decoder prints the array's identity hash, which is unrelated to the bytes.
    "DefaultDecoder": lambda data: data.hex(),
}
_SIZES: Final = {"IntegerDecoder": 4, "LongDecoder": 8}
# Up to version 3, Kafka's decoders were in the package kafka.serializer.
_PACKAGES: Final = ("", "org.apache.kafka.tools.api.", "kafka.serializer.")

_Kinds = Mapping[int, tuple[type[Message], type[Message]]]
_GROUP_RECORDS: Final[_Kinds] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    **NEWER_GROUP_RECORDS,
}
_TRANSACTION_RECORDS: Final[_Kinds] = {0: (TransactionLogKey, TransactionLogValue)}


def choose_decoder(flag: str, key_class: str, value_class: str) -> Decode:
    """Return the decoder that `flag` selects or, if `flag` is empty, a decoder for the two classes.

    Raises UsageError.
    """
    match flag:
        case "offsets_decoder":
            return lambda record: _coordinator_record(record, _GROUP_RECORDS)
        case "transaction_log_decoder":
            return lambda record: _coordinator_record(record, _TRANSACTION_RECORDS)
        case "cluster_metadata_decoder":
            return _metadata_record
        case "remote_log_metadata_decoder":
            return _remote_log_record
        case "share_group_state_decoder":
            return lambda record: _coordinator_record(record, SHARE_RECORDS)
    key, value = decoder_class(key_class), decoder_class(value_class)
    return lambda record: (
        None if record.key is None else key(record.key),
        None if record.value is None else value(record.value),
    )


def decoder_class(name: str) -> Callable[[bytes], str]:
    """Return the decoder that corresponds to a Java class. Raises UsageError.

    >>> decoder_class("org.apache.kafka.tools.api.LongDecoder")(bytes([0, 0, 0, 0, 0, 0, 1, 0]))
    '256'
    """
    package, dot, bare = name.rpartition(".")
    decode = _CLASSES.get(bare)
    if decode is None or package + dot not in _PACKAGES:
        raise UsageError(f"unknown decoder class {name}: choose one of {', '.join(_CLASSES)}")
    size = _SIZES.get(bare)

    def checked(data: bytes) -> str:
        if size is not None and len(data) < size:
            raise PlogError(f"{bare} needs {size} bytes, but the data is {len(data)} bytes long")
        return decode(data)

    return checked


def _coordinator_record(record: Record, kinds: _Kinds) -> tuple[str | None, str | None]:
    if record.key is None:
        raise PlogError(
            f"cannot decode the record at offset {record.offset}: it does not have a key, so a"
            " coordinator did not write it"
        )
    try:
        return _decode_coordinator_record(record, kinds)
    except PlogError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _decode_coordinator_record(record: Record, kinds: _Kinds) -> tuple[str, str | None]:
    kind, key_data = _split(record.key or b"", "key")
    if kind not in kinds:
        return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
    key_type, value_type = kinds[kind]
    # The number before the key is the type of the record, so the key itself has no version.
    key_version = key_type.max_version
    key: Json = as_json(key_type.decode(key_data, key_version), key_version)
    key_text = compact_json({"type": str(kind), "data": key})
    if record.value is None:
        return key_text, "<DELETE>"  # Kafka's text for a tombstone.
    version, value_data = _split(record.value, "value")
    if not value_type.min_version <= version <= value_type.max_version:
        raise WireError(f"{value_type.__name__} has no version {version}")
    value = value_type.decode(value_data, version)
    data = as_json(value, version)
    if isinstance(value, GroupMetadataValue):
        _show_members(value, data)
    return key_text, compact_json({"version": str(version), "data": data})


def _split(data: bytes, what: str) -> tuple[int, bytes]:
    if len(data) < _VERSION_BYTES:
        raise WireError(f"a {what} of {len(data)} bytes has no version")
    return int.from_bytes(data[:_VERSION_BYTES], "big", signed=True), data[_VERSION_BYTES:]


def _show_members(value: GroupMetadataValue, data: dict[str, Json]) -> None:
    """Decode the subscriptions and assignments of consumers, but not of other group members."""
    members = data["members"]
    assert isinstance(members, list)
    if value.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return
    for member, shown in zip(value.members, members, strict=True):
        assert isinstance(shown, dict)
        # Bytes that cannot be decoded stay in base64: other clients may use their own format.
        with suppress(PlogError):
            shown["subscription"] = _consumer_json(
                member.subscription, ConsumerProtocolSubscription
            )
        with suppress(PlogError):
            shown["assignment"] = _consumer_json(member.assignment, ConsumerProtocolAssignment)


def _consumer_json(data: bytes, message: type[Message]) -> Json:
    version, rest = _split(data, message.__name__)
    # As consumers do: newer versions only add fields at the end.
    known = min(version, message.max_version)
    return as_json(message.decode(rest, known), known)


def _metadata_record(record: Record) -> tuple[str | None, str | None]:
    try:
        message, version = decode_known_record(record.value or b"", KNOWN_RECORDS)
    except PlogError as error:
        return None, f"Error at {record.offset}, skipping. {error}"  # Kafka's text, word for word.
    # Kafka prints its enum MetadataRecordType, for example PARTITION_CHANGE_RECORD.
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(message).__name__).upper()
    # Kafka's metadata records have no keys.
    return None, compact_json({"type": name, "version": version, "data": as_json(message, version)})


def _remote_log_record(record: Record) -> tuple[str | None, str | None]:
    try:
        return None, remote_log_text(record.value or b"")
    except PlogError as error:
        return None, f"Error at offset {record.offset}, skipping. {error}"
