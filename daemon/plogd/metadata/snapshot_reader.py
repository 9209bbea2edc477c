"""Read a metadata snapshot into a new image, and reject a snapshot that is not complete.

snapshot_writer.py describes the file. Called when a broker starts, before anything else runs.
Source: KIP-630; Kafka 4.3 RecordsSnapshotReader.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Final

from plog.errors import PlogError
from plog.records.batch import BatchHeader, crc_is_valid, iter_batches
from plog.records.codec import Record
from plog.records.control import ControlType, decode_control_key
from plog.records.reader import read_records
from plog.wire.internal.metadata_records import decode_metadata_record
from plogd.metadata.image import MetadataImage
from plogd.metadata.snapshot_name import SnapshotName
from plogd.ports import Files

_READ_BYTES: Final = 1 << 20


class CorruptSnapshot(PlogError):
    """A snapshot is incomplete or damaged; the message says where."""


def read_snapshot(files: Files, directory: str, name: SnapshotName) -> MetadataImage:
    """Return the image in a snapshot. Raises OSError, CorruptSnapshot."""
    image = MetadataImage()
    # The records do not have offsets in the log. All keys get the newest offset that one of them
    # can have, which is below that of every later change.
    version = name.end_offset - 1
    footer = False
    number = 0
    for header, records in _batches(files, posixpath.join(directory, name.file_name)):
        # The batches are contiguous, so a gap between offsets means that a part is missing.
        if header.base_offset != number or footer:
            raise CorruptSnapshot(
                f"a batch has offset {header.base_offset} instead of {number}, or follows the end"
            )
        number = header.next_offset
        if header.is_control:
            footer = decode_control_key(records[0].key) is ControlType.SNAPSHOT_FOOTER
            continue
        for record in records:
            try:
                image.replay(decode_metadata_record(record.value or b""), version)
            except (PlogError, ValueError, KeyError) as error:
                raise CorruptSnapshot(f"invalid record {record.offset}: {error}") from error
    if not footer:
        raise CorruptSnapshot(f"the footer is missing after {number} records")
    return image


def _batches(files: Files, path: str) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yield the header and the records of each batch. Raises OSError, CorruptSnapshot."""
    file = files.open_read(path)
    try:
        size, position, length = file.size(), 0, _READ_BYTES
        while position < size:
            data = file.pread(length, position)
            used = 0
            for start, header in iter_batches(data):
                if not crc_is_valid(data, start, header):
                    raise CorruptSnapshot(f"the batch at position {position + start} is damaged")
                yield header, read_records(data, start, header)
                used = start + header.size_bytes
            if not used and position + len(data) >= size:
                raise CorruptSnapshot(f"the batch at position {position} is incomplete")
            position += used
            # A batch that did not fit is read again, with more bytes.
            length = _READ_BYTES if used else 2 * length
    except PlogError as error:
        if isinstance(error, CorruptSnapshot):
            raise
        raise CorruptSnapshot(f"a batch cannot be decoded: {error}") from error
    finally:
        file.close()
