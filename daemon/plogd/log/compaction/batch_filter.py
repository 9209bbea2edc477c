"""Remove the outdated records of a batch.

A record is outdated if a later record has the same key, if it has no key, or if its transaction was
aborted. The last record of a deleted key, a *tombstone*, has no value. Consumers that read the log
from its beginning must not miss it, so it stays for ``delete.retention.ms`` after it was first
compacted. This time, the *delete horizon*, is stored in the batch. The same applies to transaction
markers without batches.

A batch without records remains if it is the last one of its producer, whose sequence number would
otherwise be lost, or the last one of the range, so that no offset is assigned twice.

Pure. Source: Kafka 3.9 Cleaner.cleanInto, MemoryRecords.filterTo; KIP-280, KIP-534. Invariant: the
offsets, timestamps and leader epochs of the remaining records do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import NamedTuple

from plog.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    BatchHeader,
    Buffer,
    Compression,
    TimestampType,
)
from plog.records.builder import rebuild_batch
from plog.records.codec import Record, decode_records, decode_spans, encode_records
from plog.records.control import read_markers
from plog.records.offset_map import OffsetMap
from plog.records.reader import read_payload, read_records
from plog.records.record_spans import RecordSpans
from plogd.log.compaction.cleaned_transactions import CleanedTransactions

_NO_TIMESTAMP = -1
NO_DATA_OFFSET = -1


class LastRecord(NamedTuple):
    """The last batch of an active producer."""

    producer_epoch: int
    last_data_offset: int
    """The last offset of the batch; NO_DATA_OFFSET if it was a transaction marker."""


class BatchFilter:
    """Filters the batches of one log, in order.

    `latest` contains the last offset of each key below `latest_end`; `end_offset` is the end of the
    cleaned range. `producers` are the last batches of the active producers by id.
    """

    def __init__(
        self,
        latest: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastRecord],
        *,
        latest_end: int,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
        max_decompressed_bytes: int,
    ) -> None:
        self._latest = latest
        self._transactions = transactions
        self._producers = producers
        self._latest_end = latest_end
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._max_decompressed_bytes = max_decompressed_bytes
        self._spans = RecordSpans()
        self.keyless_records = 0
        """Number of removed records without a key."""

    def filter(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        """Return what remains of a batch, or None if nothing remains.

        If nothing was removed, returns `batch` itself. Raises CorruptRecords if the records cannot
        be read.
        """
        if header.is_control:
            return self._filter_marker(batch, header)
        if self._transactions.is_aborted(header):
            return self._without_records(batch, header)
        spans, horizon_ms = self._spans, header.delete_horizon_ms
        payload = read_payload(batch, 0, header, max_bytes=self._max_decompressed_bytes)
        decode_spans(payload, header, spans)
        kept, tombstones, keyless = self._latest.mark_kept(
            payload, spans, self._latest_end, horizon_ms is None or self._now_ms < horizon_ms
        )
        self.keyless_records += keyless
        if not kept:
            return self._without_records(batch, header)
        # Set once, when the tombstone is the last record of its key for the first time.
        if tombstones and horizon_ms is None:
            records = decode_records(payload, header)
            return self._with_horizon(header, list(compress(records, spans.is_kept)))
        if kept == spans.count:
            return batch
        return self._with_kept(header, payload, kept)

    def _filter_marker(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        markers = list(read_markers(batch, header))
        if not self._transactions.is_marker_unused(header, markers):
            return batch
        horizon_ms = header.delete_horizon_ms
        if not markers or (horizon_ms is not None and horizon_ms <= self._now_ms):
            return self._without_records(batch, header)
        if horizon_ms is not None:
            return batch
        return self._with_horizon(header, read_records(batch, 0, header))

    def _without_records(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        """Return the batch without records if it must remain."""
        if not (self._is_last_of_producer(header) or header.next_offset == self._end_offset):
            return None
        if not header.records_count:
            return batch
        return rebuild_batch(
            header._replace(
                attributes=header.attributes & ~(DELETE_HORIZON_BIT | COMPRESSION_MASK),
                base_timestamp=_NO_TIMESTAMP,
                records_count=0,
            ),
            b"",
            compression=Compression.NONE,
            level=None,
            max_timestamp=header.max_timestamp,
        )

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset == NO_DATA_OFFSET:
            return header.is_control and header.producer_epoch == last.producer_epoch
        return header.last_offset == last.last_data_offset

    def _with_kept(self, header: BatchHeader, payload: bytes, kept: int) -> Buffer:
        """Return the batch with the records that are marked in the spans."""
        spans = self._spans
        rows = list(compress(range(spans.count), spans.is_kept))
        # Their deltas stay valid, so their bytes can be copied.
        starts = spans.starts
        records = b"".join([payload[starts[row] : starts[row + 1]] for row in rows])
        max_timestamp = max([spans.timestamps[row] for row in rows])
        return self._rebuilt(header, records, kept, max_timestamp)

    def _with_horizon(self, header: BatchHeader, kept: list[Record]) -> Buffer:
        """Return the batch with these records and a delete horizon."""
        # The base timestamp contains the horizon, and the records' deltas refer to it.
        horizon_ms = self._now_ms + self._delete_retention_ms
        records = encode_records(kept, header.base_offset, horizon_ms)
        header = header._replace(
            attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=horizon_ms
        )
        return self._rebuilt(header, records, len(kept), max(one.timestamp for one in kept))

    def _rebuilt(
        self, header: BatchHeader, records: bytes, count: int, max_timestamp: int
    ) -> Buffer:
        if header.timestamp_type is not TimestampType.CREATE_TIME:
            max_timestamp = header.max_timestamp
        return rebuild_batch(
            header._replace(records_count=count),
            records,
            compression=header.compression,
            level=None,
            max_timestamp=max_timestamp,
        )
