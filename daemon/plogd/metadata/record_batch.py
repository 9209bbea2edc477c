"""Build the batches of metadata records that `EmbeddedStore` appends to its log.

A batch can have 10,000 records. A large batch is built in slices, so that other work can run in
between (fair_queue.py); the result is the same as that of `batch_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plog.records.batch import Compression, iter_batches
from plog.records.builder import build_batch, rebuild_batch
from plog.records.codec import Record, encode_records
from plog.wire.internal.metadata_records import MetadataRecord, encode_metadata_record
from plogd.fair_queue import SLICE, FairQueue

# Version 0 has all fields that plog sets, and Kafka's tools read every version.
_RECORD_VERSION: Final = 0


def batch_of(records: Sequence[MetadataRecord], now_ms: int) -> bytearray:
    """Return a batch of one or more `records`, with offsets that start at 0."""
    # A bytearray, because the log writes offsets and the leader epoch into the batch.
    return bytearray(build_batch(_records(records, 0, now_ms)))


async def batch_in_slices(
    records: Sequence[MetadataRecord], now_ms: int, queue: FairQueue
) -> bytearray:
    """Do the same as `batch_of`, with a separate turn for each slice of `records`."""
    pieces: list[bytes] = []
    for start in range(0, len(records), SLICE):
        # A turn for each slice, because encoding 10,000 records at once would delay all clients.
        await queue.turn()
        some = _records(records[start : start + SLICE], start, now_ms)
        pieces.append(encode_records(some, 0, now_ms))
    # The header is that of a batch with only the first record, except for the two counts.
    [(_, header)] = iter_batches(build_batch(_records(records[:1], 0, now_ms)))
    return rebuild_batch(
        header._replace(last_offset_delta=len(records) - 1, records_count=len(records)),
        b"".join(pieces),
        compression=Compression.NONE,
        level=None,
        max_timestamp=now_ms,
    )


def _records(records: Sequence[MetadataRecord], first: int, now_ms: int) -> list[Record]:
    return [
        Record(
            offset=offset,
            timestamp=now_ms,
            key=None,
            value=encode_metadata_record(record, _RECORD_VERSION),
            headers=(),
        )
        for offset, record in enumerate(records, first)
    ]
