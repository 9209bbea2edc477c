"""The ``.snapshot`` files: the state of a partition's producers up to an offset.

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
from collections.abc import Collection, Iterable
from typing import NamedTuple

from plog.errors import PlogError
from plog.records.crc32c import crc32c
from plogd.log.disk.checkpoint_files import write_atomic
from plogd.log.file_names import SNAPSHOT_SUFFIX, parse_segment_file_name, segment_path
from plogd.ports import Files

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


class ProducerSnapshots:
    """The snapshots in the directory of one log. All methods access files. Raise OSError."""

    __slots__ = ("_directory", "_files")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def path(self, end_offset: int) -> str:
        """Return the path of the snapshot of the producer state up to `end_offset`."""
        return segment_path(self._directory, end_offset, SNAPSHOT_SUFFIX)

    def offsets(self) -> list[int]:
        """Return the end offsets of all snapshots on disk, in ascending order."""
        names = map(parse_segment_file_name, self._files.listdir(self._directory))
        return sorted(
            name.base_offset
            for name in names
            if name is not None and name.suffix == SNAPSHOT_SUFFIX and not name.state
        )

    def exists(self, end_offset: int) -> bool:
        """Return whether there is a snapshot up to `end_offset`."""
        return self._files.exists(self.path(end_offset))

    def read(self, end_offset: int) -> list[SnapshotEntry]:
        """Return the entries of a snapshot. Raises CorruptSnapshot."""
        return decode_snapshot(self._files.read_file(self.path(end_offset)))

    def write(self, end_offset: int, entries: Iterable[SnapshotEntry]) -> None:
        """Durably write a snapshot."""
        write_atomic(self._files, self.path(end_offset), encode_snapshot(entries))

    def delete_stray(self, segment_base_offsets: Collection[int]) -> None:
        """Delete snapshots that belong to no segment, except a snapshot above all base offsets."""
        offsets = self.offsets()
        # A clean stop writes a snapshot at the log end, where no segment begins.
        latest = offsets[-1:] if offsets[-1:] > [max(segment_base_offsets, default=-1)] else []
        for offset in offsets:
            if offset not in segment_base_offsets and offset not in latest:
                self.delete(offset)

    def delete_above(self, end_offset: int) -> None:
        """Delete all snapshots above `end_offset`, newest first."""
        for offset in reversed(self.offsets()):
            if offset > end_offset:
                self.delete(offset)

    def delete_before(self, offset: int) -> None:
        """Delete all snapshots at or below `offset`, except the newest one."""
        # Recovery needs that snapshot until there is one at `offset`.
        for snapshot_offset in [one for one in self.offsets() if one <= offset][:-1]:
            self.delete(snapshot_offset)

    def delete(self, end_offset: int) -> None:
        """Delete a snapshot if it exists."""
        if self.exists(end_offset):
            self._files.unlink(self.path(end_offset))
