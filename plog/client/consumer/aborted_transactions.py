"""Which batches of a fetch belong to transactions that were aborted.

A broker tells with each fetch the aborted transactions that reach into it: who, and from which
offset on. A transaction ends at its producer's ABORT marker, a control batch among the others, and
one producer has one transaction at a time; so walking the batches in order is enough.

Pure. Source: KIP-98; Kafka 3.9 CompletedFetch.
"""

from __future__ import annotations

from collections.abc import Iterable

from plog.records.batch import BatchHeader, Buffer
from plog.records.codec import decode_records
from plog.records.control import ControlType, decode_control_key
from plog.records.reader import read_payload
from plog.wire.messages.fetch import AbortedTransaction


class AbortedTransactions:
    """The aborted transactions of one fetch of one partition; shown its batches one by one."""

    __slots__ = ("_open_ids", "_to_come")

    def __init__(self, told: Iterable[AbortedTransaction]) -> None:
        first_offsets = ((one.first_offset, one.producer_id) for one in told)
        self._to_come = sorted(first_offsets, reverse=True)
        self._open_ids: set[int] = set()

    def covers(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether the batch at `position` is not to be read, being part of one of them.

        Must be asked of every batch, in their order. Raises CorruptRecords for a broken marker.
        """
        if not header.has_producer_id:
            return False
        while self._to_come and self._to_come[-1][0] <= header.last_offset:
            self._open_ids.add(self._to_come.pop()[1])
        if header.is_control:
            if header.producer_id in self._open_ids and is_abort_marker(data, position, header):
                self._open_ids.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open_ids


def is_abort_marker(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the control batch at `position` ends a transaction by aborting it."""
    records = decode_records(read_payload(data, position, header), header)
    # A control batch may have lost its record to compaction and stands for nothing then.
    return bool(records) and decode_control_key(records[0].key) is ControlType.ABORT
