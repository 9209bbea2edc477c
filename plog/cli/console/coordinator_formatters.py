"""Formatters for ``plog console-consumer`` that print internal topics as JSON.

As in Kafka, a formatter skips records of other types in the same topic. Source: Kafka 4.3
OffsetsMessageFormatter, GroupMetadataMessageFormatter and TransactionLogMessageFormatter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from plog.error_base import PlogError

if TYPE_CHECKING:
    from plog.client.values import ConsumerRecord
    from plog.wire.schema import Message

_VERSION_BYTES: Final = 2


class _Kind(NamedTuple):
    key: type[Message]
    value: type[Message]


class CoordinatorFormatter:
    """Formats records of the types in `kinds`; a record's type is the first number in its key."""

    def __init__(self, kinds: Mapping[int, _Kind]) -> None:
        self._kinds = kinds

    def format(self, record: ConsumerRecord) -> bytes:
        """Return a line of JSON, or empty bytes for a record of another type. Raises PlogError."""
        from plog.wire.as_json import Json, as_json, compact_json

        # Coordinators always write a key, so another producer has written this record.
        if record.key is None:
            return b""
        number, key = _split(record.key, "key", record)
        kind = self._kinds.get(number)
        if kind is None:
            return b""
        # The type is also the version of the key's schema. Only offset keys have two versions.
        version = min(number, kind.key.max_version)
        shown: dict[str, Json] = {
            "key": {"type": number, "data": as_json(kind.key.decode(key, version), version)},
            "value": None,
        }
        # A record without a value is a tombstone, which deletes an earlier record.
        if record.value is not None:
            version, value = _split(record.value, "value", record)
            # A newer broker may have written the record.
            if not kind.value.min_version <= version <= kind.value.max_version:
                raise PlogError(f"unknown version {version} of {kind.value.__name__}")
            data = as_json(kind.value.decode(value, version), version)
            shown["value"] = {"version": version, "data": data}
        return compact_json(shown).encode() + b"\n"


def _split(data: bytes, what: str, record: ConsumerRecord) -> tuple[int, bytes]:
    if len(data) < _VERSION_BYTES:
        raise PlogError(
            f"the {what} at offset {record.offset} does not have a version, so a coordinator did"
            " not write it"
        )
    return int.from_bytes(data[:_VERSION_BYTES], "big", signed=True), data[_VERSION_BYTES:]


def _offsets(properties: Mapping[str, str]) -> CoordinatorFormatter:
    # Imported here, because a command uses at most one of the formatters.
    from plog.wire.internal.group_records import OffsetCommitKey, OffsetCommitValue

    kind = _Kind(OffsetCommitKey, OffsetCommitValue)
    # The topic __consumer_offsets also contains other types: 2 for the metadata of classic groups,
    # and types from 3 on for newer kinds of groups (KIP-848).
    return CoordinatorFormatter({0: kind, 1: kind})


def _group_metadata(properties: Mapping[str, str]) -> CoordinatorFormatter:
    from plog.wire.internal.group_records import GroupMetadataKey, GroupMetadataValue

    return CoordinatorFormatter({2: _Kind(GroupMetadataKey, GroupMetadataValue)})


def _transactions(properties: Mapping[str, str]) -> CoordinatorFormatter:
    from plog.wire.internal.transaction_records import TransactionLogKey, TransactionLogValue

    return CoordinatorFormatter({0: _Kind(TransactionLogKey, TransactionLogValue)})


COORDINATOR_FORMATTERS: Final[Mapping[str, Callable[[Mapping[str, str]], CoordinatorFormatter]]] = {
    "OffsetsMessageFormatter": _offsets,
    "GroupMetadataMessageFormatter": _group_metadata,
    "TransactionLogMessageFormatter": _transactions,
}
