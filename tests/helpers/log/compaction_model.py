"""What a compaction must leave of a log, by rules that look at all batches at once.

It has what the code under test does not: the transaction of each batch, and all records in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plog.records.batch import Compression, TimestampType
from plogd.log.compaction.batch_filter import NO_DATA_OFFSET, LastRecord
from tests.helpers.log.compacted_log import RETENTION_MS, CompactedLog, StoredBatch


def expected_after(
    log: CompactedLog,
    batches: Sequence[StoredBatch],
    *,
    end_offset: int,
    now_ms: int,
    producers: Mapping[int, LastRecord],
) -> list[StoredBatch]:
    """Return what remains of `batches` if `log` is compacted up to `end_offset`."""
    cleaned = [one for one in batches if one.base_offset < end_offset]
    latest = {
        record.key: record.offset
        for batch in cleaned
        if not batch.is_control and not _is_aborted(log, batch)
        for record in batch.records
    }
    with_data = {
        log.transaction_of.get(batch.base_offset) for batch in cleaned if not batch.is_control
    }
    remaining: list[StoredBatch] = []
    for batch in cleaned:
        expires = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
        if batch.is_control:
            is_unused = log.transaction_of[batch.base_offset] not in with_data
            kept = () if is_unused and expires else batch.records
            needs_horizon = is_unused
        else:
            kept = tuple(
                record
                for record in batch.records
                if not _is_aborted(log, batch)
                and record.key is not None
                and latest[record.key] == record.offset
                and not (record.value is None and expires)
            )
            needs_horizon = any(record.value is None for record in kept)
        if not kept:
            if _must_remain(batch, end_offset, producers):
                remaining.append(
                    batch._replace(records=(), horizon_ms=None, codec=Compression.NONE)
                )
            continue
        new = batch._replace(records=kept)
        if needs_horizon and batch.horizon_ms is None:
            new = new._replace(horizon_ms=now_ms + RETENTION_MS)
        if batch.timestamp_type is TimestampType.CREATE_TIME:
            new = new._replace(max_timestamp=max(record.timestamp for record in kept))
        remaining.append(new)
    return remaining + [one for one in batches if one.base_offset >= end_offset]


def _is_aborted(log: CompactedLog, batch: StoredBatch) -> bool:
    return log.transaction_of.get(batch.base_offset) in log.aborted_numbers


def _must_remain(batch: StoredBatch, end_offset: int, producers: Mapping[int, LastRecord]) -> bool:
    if batch.last_offset == end_offset - 1:
        return True
    if batch.producer_id not in producers:
        return False
    last = producers[batch.producer_id]
    if last.last_data_offset == NO_DATA_OFFSET:
        return batch.is_control and batch.producer_epoch == last.producer_epoch
    return batch.last_offset == last.last_data_offset
