"""Control records: the transaction markers that brokers write, and the types used by KRaft.

A control batch (see `BatchHeader.is_control`) contains one record. Its key is the control type; the
value of a transaction marker contains the coordinator epoch. Consumers do not return control
records to the application. plog/wire/internal/raft_records.py decodes KRaft's records. Source:
KIP-98; Kafka 3.9 ControlRecordType, EndTransactionMarker.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from plog.records.batch import BatchHeader, Buffer, CorruptRecords
from plog.records.reader import read_records

_KEY = Struct(">hh")  # Version, type. A later version can append fields.
_END_TXN = Struct(">hi")  # Version, coordinator epoch.
_VERSION = 0


class ControlType(IntEnum):
    """The type of a control record; an unknown number becomes `UNKNOWN`."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """A commit or abort marker."""

    is_commit: bool
    coordinator_epoch: int
    timestamp: int


def read_markers(batch: Buffer, header: BatchHeader) -> Iterator[EndTransactionMarker]:
    """Yield the transaction markers in a control batch; other control records have no marker.

    A marker that has lost its record to compaction is not returned. Raises CorruptRecords.
    """
    for record in read_records(batch, 0, header):
        control_type = decode_control_key(record.key)
        if control_type in (ControlType.ABORT, ControlType.COMMIT):
            yield EndTransactionMarker(
                is_commit=control_type is ControlType.COMMIT,
                coordinator_epoch=decode_end_txn_value(record.value),
                timestamp=record.timestamp,
            )


def encode_control_key(control_type: ControlType) -> bytes:
    """Return the key of a control record.

    >>> encode_control_key(ControlType.COMMIT).hex()
    '00000001'
    """
    return _KEY.pack(_VERSION, control_type)


def decode_control_key(key: bytes | None) -> ControlType:
    """Return the control type in a key. Raises CorruptRecords."""
    version, number = _unpack(_KEY, key)
    # Higher versions are accepted, because they can only append fields.
    if version < 0:
        raise CorruptRecords(f"the key of a control record has invalid version {version}")
    known = number in ControlType.__members__.values()
    return ControlType(number) if known else ControlType.UNKNOWN


def encode_end_txn_value(coordinator_epoch: int) -> bytes:
    """Return the value of an ABORT or COMMIT record.

    >>> encode_end_txn_value(7).hex()
    '000000000007'
    """
    return _END_TXN.pack(_VERSION, coordinator_epoch)


def decode_end_txn_value(value: bytes | None) -> int:
    """Return the coordinator epoch in an ABORT or COMMIT record's value. Raises CorruptRecords."""
    version, coordinator_epoch = _unpack(_END_TXN, value)
    if version < 0:
        raise CorruptRecords(f"the value of a transaction marker has invalid version {version}")
    return coordinator_epoch


def _unpack(layout: Struct, data: bytes | None) -> tuple[int, int]:
    try:
        first, second = layout.unpack_from(data or b"")
    except struct.error:
        raise CorruptRecords("a control record is too short") from None
    return first, second
