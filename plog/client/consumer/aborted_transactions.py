"""A filter that finds the batches of aborted transactions in fetched data.

Each fetch response lists the aborted transactions that overlap its data, with their producer IDs
and first offsets. An aborted transaction ends at its producer's ABORT marker, which is a control
batch among the other batches. A producer has only one transaction at a time, so one pass over the
batches in order is enough.

Source: KIP-98; Kafka 3.9 CompletedFetch.
"""

from __future__ import annotations

from collections.abc import Iterable

from plog.records.batch import BatchHeader, Buffer
from plog.records.codec import decode_records
from plog.records.control import ControlType, decode_control_key
from plog.records.reader import read_payload
from plog.wire.messages.fetch import AbortedTransaction


class AbortedTransactions:
    """The aborted transactions in one fetched partition."""

    __slots__ = ("_open_ids", "_pending")

    def __init__(self, listed: Iterable[AbortedTransaction]) -> None:
        first_offsets = ((one.first_offset, one.producer_id) for one in listed)
        # Sort in descending order, so that `pop` returns the lowest offset.
        self._pending = sorted(first_offsets, reverse=True)
        self._open_ids: set[int] = set()

    def covers(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Return whether the batch at `position` is part of an aborted transaction.

        Call this for every batch, in order. Raises CorruptRecords for a corrupt marker.
        """
        # A batch without a producer ID does not belong to a transaction.
        if not header.has_producer_id:
            return False
        # A transaction opens at its first offset; earlier batches are not part of it.
        while self._pending and self._pending[-1][0] <= header.last_offset:
            self._open_ids.add(self._pending.pop()[1])
        if header.is_control:
            if header.producer_id in self._open_ids and is_abort_marker(data, position, header):
                # The producer's next transaction may be committed.
                self._open_ids.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open_ids


def is_abort_marker(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the control batch at `position` aborts a transaction."""
    records = decode_records(read_payload(data, position, header), header)
    # Compaction may have removed the record of a control batch, which then has no effect.
    return bool(records) and decode_control_key(records[0].key) is ControlType.ABORT
