"""A whole record batch to values: checksum, decompression and records in one go.

For who needs the records themselves: consumers, coordinators replaying their logs, and the broker
where it looks for a timestamp. On the ways of produce and fetch batch.py is enough.
"""

from __future__ import annotations

from collections.abc import Iterator

from plog.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    CorruptBatch,
    crc_is_valid,
    iter_batches,
)
from plog.records.codec import Record, decode_records
from plog.records.compression import decompress

MAX_DECOMPRESSED_BYTES = 256 << 20
"""What the records of one batch may take unless the caller says otherwise. Kafka has no bound."""


def read_records(
    data: Buffer,
    position: int,
    header: BatchHeader,
    *,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """The records of the batch at `position`, whose header is `header`; checksum not checked.

    Raises CorruptRecords if the batch contradicts itself, or would decompress to more than
    `max_bytes`; UnsupportedCompressionType for an unknown codec.
    """
    return decode_records(read_payload(data, position, header, max_bytes=max_bytes), header)


def read_payload(
    data: Buffer,
    position: int,
    header: BatchHeader,
    *,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """The uncompressed bytes behind the header of the batch at `position`; raises as above."""
    end = position + header.size_bytes
    if header.size_bytes < HEADER_SIZE or end > len(data):
        raise CorruptBatch(f"the batch at byte {position} ends at {end}, the data at {len(data)}")
    payload = memoryview(data)[position + HEADER_SIZE : end]
    return decompress(header.compression, payload, max_bytes)


def iter_records(
    data: Buffer, *, from_offset: int = 0, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """All records of the whole batches in `data`, as a fetch returned it, from `from_offset` on.

    A fetch returns whole batches, so the first records may lie in front of what was asked for.
    Checksums are checked; control batches are left out. Raises CorruptBatch.
    """
    for position, header in iter_batches(data):
        if header.last_offset < from_offset or header.is_control:
            continue
        if not crc_is_valid(data, position, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} fails its checksum")
        for record in read_records(data, position, header, max_bytes=max_bytes):
            if record.offset >= from_offset:
                yield record
