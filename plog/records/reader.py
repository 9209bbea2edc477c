"""Read complete record batches: checksum, decompression and decoding in one step.

Consumers, coordinators that replay their logs, and the broker's timestamp lookups need the records
themselves. Produce and fetch only use batch.py.
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
"""Default maximum size of a batch's decompressed records. Kafka has no limit."""


def read_records(
    data: Buffer,
    position: int,
    header: BatchHeader,
    *,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """Return the records of the batch at `position`, which has `header`, without checking its CRC.

    Raises CorruptRecords if the batch is inconsistent or decompresses to more than `max_bytes`;
    UnsupportedCompressionType for an unknown codec.
    """
    return decode_records(read_payload(data, position, header, max_bytes=max_bytes), header)


def read_payload(
    data: Buffer,
    position: int,
    header: BatchHeader,
    *,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Return the decompressed records of a batch; the arguments are those of `read_records`."""
    end = position + header.size_bytes
    if header.size_bytes < HEADER_SIZE or end > len(data):
        raise CorruptBatch(
            f"invalid size at byte {position} of {len(data)}: {header.size_bytes} bytes"
        )
    payload = memoryview(data)[position + HEADER_SIZE : end]
    return decompress(header.compression, payload, max_bytes)


def iter_records(
    data: Buffer, *, from_offset: int = 0, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """Yield the records of the complete batches in a fetch response, starting at `from_offset`.

    The function verifies checksums and skips control batches. Raises CorruptBatch.
    """
    for position, header in iter_batches(data):
        # Skipped before the checksum is verified, because this batch is not used.
        if header.last_offset < from_offset or header.is_control:
            continue
        if not crc_is_valid(data, position, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} fails its checksum")
        for record in read_records(data, position, header, max_bytes=max_bytes):
            # A fetch returns complete batches, so the first batch can start before `from_offset`.
            if record.offset >= from_offset:
                yield record
