"""Replay the metadata log into an image when a broker starts.

Called by image_loader.py, before anything else runs. A damaged, missing or unknown record aborts
the startup: otherwise, the broker would run without some of its topics or settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plog.errors import KafkaStorageError, PlogError
from plog.records.batch import HEADER_SIZE, crc_is_valid, iter_batches
from plog.records.codec import decode_records
from plog.wire.internal.metadata_records import decode_metadata_record
from plog.wire.primitives import WireError
from plogd.log.log import Log
from plogd.metadata.image import MetadataImage

# Up to metadata.log.max.record.bytes.between.snapshots may follow the newest snapshot, so they are
# not read in one piece.
_READ_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Replayed:
    """The batches that were replayed."""

    size_bytes: int = 0
    last_timestamp_ms: int = -1
    """The timestamp of the last batch; -1 before the first one."""


def replay_log(log: Log, image: MetadataImage, offset: int) -> Replayed:
    """Replay `log` from `offset` on, which is the start of a batch, or the end of the log.

    Raises KafkaStorageError if the log is damaged or has unknown records.
    """
    replayed = Replayed()
    while offset < log.log_end_offset:
        next_offset = _replay_batches(log, image, _read(log, offset), offset, replayed)
        if next_offset <= offset:  # No complete batch was read, so the loop would never end.
            raise _lost(log, offset)
        offset = next_offset
    return replayed


def _read(log: Log, offset: int) -> bytes:
    """Return some batches, starting at `offset`."""
    try:
        region = log.read(offset, _READ_BYTES, end_offset=log.log_end_offset).region
        # `replay_log` reports the missing records.
        if region is None:
            return b""
        try:
            return region.read()
        finally:
            # A region holds a reference to the file of its segment.
            region.close()
    except (OSError, PlogError) as error:
        raise KafkaStorageError(
            f"cannot read {log.topic_partition} at offset {offset}: {error}"
        ) from error


def _replay_batches(
    log: Log, image: MetadataImage, payload: bytes, offset: int, replayed: Replayed
) -> int:
    """Replay the complete batches in `payload`; return the offset after the last batch."""
    for position, header in iter_batches(payload):
        # The metadata log is not compacted, so a gap in its offsets means that a file is missing.
        if header.base_offset != offset:
            raise _lost(log, offset)
        # Damaged records can often be decoded, and would then change the metadata silently.
        if not crc_is_valid(payload, position, header):
            raise KafkaStorageError(
                f"cannot replay {log.topic_partition}: the batch at offset {header.base_offset} "
                "is damaged; restore its files from a backup"
            )
        offset = header.next_offset
        replayed.size_bytes += header.size_bytes
        replayed.last_timestamp_ms = header.max_timestamp
        if header.is_control:  # Raft's own records, which do not change the metadata.
            continue
        records = payload[position + HEADER_SIZE : position + header.size_bytes]
        for record in decode_records(records, header):
            _replay_value(log, image, record.value, record.offset)
    return offset


def _lost(log: Log, offset: int) -> KafkaStorageError:
    return KafkaStorageError(
        f"cannot replay {log.topic_partition}: records are missing at offset {offset}, because a "
        f"file in {log.directory} was truncated or removed; restore it from a backup"
    )


def _replay_value(log: Log, image: MetadataImage, value: bytes | None, offset: int) -> None:
    # A record without a value cannot be decoded either, and is reported like other invalid records.
    try:
        image.replay(decode_metadata_record(value or b""), offset)
    except (WireError, ValueError) as error:
        raise KafkaStorageError(
            f"cannot replay {log.topic_partition}: invalid record at offset {offset}: {error}"
        ) from error
