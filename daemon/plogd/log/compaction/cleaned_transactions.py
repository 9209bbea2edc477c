"""Which batches belong to aborted transactions, while compaction reads a log from its beginning.

Compaction removes the records of aborted transactions. It removes a marker only when no batch of
its transaction is left: consumers need the marker to know where the transaction ends.

Pure. Source: Kafka 3.9 CleanedTransactionMetadata; KIP-98, KIP-534.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from plog.records.batch import BatchHeader
from plog.records.control import EndTransactionMarker
from plogd.log.segment.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions of a pass over consecutive batches, with those that are known as aborted.

    `aborted` are in the order of their first offsets. `kept` collects the ones that the cleaned
    segment's index must contain.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._pending = deque(sorted(aborted, key=lambda one: one.first_offset))
        self._ongoing_aborted: dict[int, AbortedTransaction] = {}
        self._with_batches: set[int] = set()
        """Producers whose current transaction had a batch in this pass."""
        self.kept: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether a data batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        self._with_batches.add(header.producer_id)
        return header.producer_id in self._ongoing_aborted

    def is_marker_unused(
        self, header: BatchHeader, markers: Sequence[EndTransactionMarker]
    ) -> bool:
        """Return whether no batch precedes the markers of a control batch."""
        self._begin_up_to(header.last_offset)
        if not markers:
            # Other control records are kept; of a marker whose record is gone, nothing is left.
            return not header.records_count
        producer_id = header.producer_id
        had_batches = producer_id in self._with_batches
        self._with_batches.discard(producer_id)
        aborted = self._ongoing_aborted.pop(producer_id, None)
        if aborted is not None and had_batches:
            self.kept.append(aborted)
        return not had_batches

    def take_kept(self) -> list[AbortedTransaction]:
        """Return and clear `kept`, in the order of their markers."""
        kept, self.kept = self.kept, []
        return kept

    def _begin_up_to(self, offset: int) -> None:
        while self._pending and self._pending[0].first_offset <= offset:
            aborted = self._pending.popleft()
            self._ongoing_aborted.setdefault(aborted.producer_id, aborted)
