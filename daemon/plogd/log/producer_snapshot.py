"""The ``.snapshot`` file: the state of a partition's producers up to an offset.

The file's name contains this offset, which is exclusive. Version 1, big-endian:

    version             int16    1
    crc                 uint32   CRC-32C of everything that follows
    entry count         int32
    entries             46 bytes each, `_ENTRY` below

As in Kafka, a snapshot contains only the newest batch of each producer, so the broker detects fewer
duplicates immediately after a restart.

Source: Kafka 3.9 ProducerSnapshot.json, ProducerStateManager.readSnapshot and writeSnapshot.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from plog.errors import PlogError
from plog.records.crc32c import crc32c

_VERSION = 1
_HEADER = struct.Struct(">hIi")
_CRC_END = 6  # The checksum covers everything after this position.

# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the open transaction
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(PlogError):
    """A snapshot file is damaged; recovery uses an older one, or none."""


class SnapshotEntry(NamedTuple):
    """One producer in a snapshot; -1 for fields without a value."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """Return the content of a snapshot file."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    # In Kafka's format, the checksum also covers the count.
    body = len(packed).to_bytes(4, "big") + b"".join(packed)
    return _HEADER.pack(_VERSION, crc32c(body), len(packed)) + body[4:]


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """Return the entries of a snapshot file. Raises CorruptSnapshot."""
    if len(data) < _HEADER.size:
        raise CorruptSnapshot(f"a producer snapshot of {len(data)} bytes is too short")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"producer snapshot version {version} is not supported")
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise CorruptSnapshot("the checksum of a producer snapshot does not match")
    # The checksum covers the count, so a wrong count is a bug in the writer, not damage.
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptSnapshot(
            f"a producer snapshot of {len(data)} bytes does not contain {count} entries"
        )
    return [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(data[_HEADER.size :])]
