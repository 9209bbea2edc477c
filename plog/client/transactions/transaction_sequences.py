"""A partition's sequence numbers within transactions.

After missing sequence numbers, an idempotent producer increments the epoch itself
(sequence_numbers.py). In transactions, only the coordinator assigns epochs. A batch that cannot be
retried with its numbers therefore fails, and the transaction fails with it (decision 0014). The
numbers restart at 0 in the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from plog.client.producer.sequence_numbers import (
    REMEMBERED_BATCHES,
    PartitionSequences,
    ProducerIdentity,
    SequencedBatch,
)
from plog.client.transactions.transaction_state import TransactionState
from plog.types import TopicPartition

if TYPE_CHECKING:
    from plog.client.producer.producer_batch import ProducerBatch
    from plog.client.settings import ProducerSettings

B = TypeVar("B", bound=SequencedBatch)


class TransactionSequences(PartitionSequences[B]):
    """One partition's sequence numbers. The first batch adds the partition to the transaction."""

    def __init__(
        self,
        partition: TopicPartition,
        state: TransactionState,
        *,
        window_max: int = REMEMBERED_BATCHES,
    ) -> None:
        super().__init__(window_max=window_max)
        self._partition = partition
        self._state = state

    def may_send(self, batch: B) -> bool:
        # The coordinator may have returned a new epoch since the last batch.
        if self.identity != self._state.identity:
            self._restart(self._state.identity)
        # Only the coordinator assigns epochs, so a gap in the numbers remains until the next epoch.
        if self.is_broken or not super().may_send(batch):
            return False
        return self._state.admits(self._partition)

    def _restart(self, identity: ProducerIdentity | None) -> None:
        """Restart the numbers in a new epoch."""
        # All batches of a finished transaction are settled, so no batch must be renumbered.
        self.identity = identity
        self.is_broken = False
        self._next_sequence = 0
        self._is_known = self._newest_is_written = False
        self._window.clear()

    def out_of_order(self, batch: B) -> bool:
        """Return whether to retry `batch`: only if earlier batches may still fill the gap."""
        waits = super().out_of_order(batch)
        # If no earlier batch can fill the gap, `batch` would only fail again.
        if self.is_broken:
            batch.is_deferred, waits = True, False
        return waits

    def unknown_producer(self, batch: B, *, is_fenced: bool = False) -> bool:
        """Return False: `batch` fails if the broker has lost or fenced the producer."""
        batch.on_wire = False
        self.is_broken = True
        return False

    def recover(self) -> tuple[list[B], list[B]]:
        """Return the deferred batches, which fail; no batch is sent before the next epoch."""
        # Batches in doubt keep their numbers, because they may be retried within the transaction.
        lost = [batch for batch in self._unsettled() if self.is_broken and batch.is_deferred]
        for batch in lost:
            batch.is_settled = True
        return lost, []


def sequences_factory(
    state: TransactionState, settings: ProducerSettings
) -> Callable[[TopicPartition], PartitionSequences[ProducerBatch]]:
    """Return a factory of partition sequences for a transactional producer."""
    window_max = settings.max_in_flight_requests_per_connection
    return lambda partition: TransactionSequences(partition, state, window_max=window_max)
