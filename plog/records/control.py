"""Control records: what brokers write among the records for each other and for consumers.

A control batch (see `BatchHeader.is_control`) holds one record: its key names the kind, and for the
end of a transaction its value names the coordinator. Consumers skip them. The kinds Kafka's
controllers use among themselves are known by number only. Source: KIP-98; Kafka 3.9
ControlRecordType, EndTransactionMarker.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from struct import Struct

from plog.records.batch import CorruptRecords

_KEY = Struct(">hh")  # Version, kind. A later version may append fields.
_END_TXN = Struct(">hi")  # Version, coordinator epoch.
_VERSION = 0


class ControlType(IntEnum):
    """The kinds of control record; a number we do not know is `UNKNOWN`."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def encode_control_key(control_type: ControlType) -> bytes:
    """The key of a control record.

    >>> encode_control_key(ControlType.COMMIT).hex()
    '00000001'
    """
    return _KEY.pack(_VERSION, control_type)


def decode_control_key(key: bytes | None) -> ControlType:
    """The kind of control record this key stands for. Raises CorruptRecords."""
    version, number = _unpack(_KEY, key)
    if version < 0:
        raise CorruptRecords(f"a control record's key has version {version}")
    known = number in ControlType.__members__.values()
    return ControlType(number) if known else ControlType.UNKNOWN


def encode_end_txn_value(coordinator_epoch: int) -> bytes:
    """The value of an ABORT or COMMIT record.

    >>> encode_end_txn_value(7).hex()
    '000000000007'
    """
    return _END_TXN.pack(_VERSION, coordinator_epoch)


def decode_end_txn_value(value: bytes | None) -> int:
    """The coordinator epoch in an ABORT's or COMMIT's value. Raises CorruptRecords."""
    version, coordinator_epoch = _unpack(_END_TXN, value)
    if version < 0:
        raise CorruptRecords(f"the end of a transaction has version {version}")
    return coordinator_epoch


def _unpack(layout: Struct, data: bytes | None) -> tuple[int, int]:
    try:
        first, second = layout.unpack_from(data or b"")
    except struct.error:
        raise CorruptRecords("a control record is too short") from None
    return first, second
