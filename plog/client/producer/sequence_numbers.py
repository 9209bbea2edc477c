"""Sequence numbers: which batch of an idempotent producer may be sent, and with which numbers.

The module has no clock, queue or network. batch_completion.py reports a batch's outcome, and
sender.py asks which batch may be sent next. For each partition and producer ID, a broker remembers
the epoch, the last sequence number and the last five batches. It accepts only the next batch in
sequence, repeats its response to a remembered batch, and rejects any other batch as out of order.
This leads to the following rules:

- A batch keeps its numbers until it is settled. Sending it again with the same numbers is always
  safe.
- A batch gets new numbers only if every response to it states that it was not written. If a
  response is missing (a lost connection, a timeout, a deposed leader), the batch is *in doubt* and
  stays in doubt.
- From the oldest unsettled batch to the newest, there are at most five batches, because the broker
  does not remember more. Retries are sent one at a time, oldest first.
- A broker that does not know a producer accepts any number. Until the first batch is written, no
  other batch is sent. Otherwise, the broker could accept a later batch and reject the first. The
  same applies to the first batch for a recreated topic.
- When a batch fails, its numbers may be missing from the log. No new batch is sent until all sent
  batches are settled. If the newest of them was written, the numbers continue. Otherwise, the
  numbers restart in the next epoch (KIP-360), and batches that were certainly not written get new
  numbers.
- A batch in doubt that is rejected as out of order may have been written and forgotten: a restarted
  broker remembers only one batch. The batch is deferred, and later batches are tried. If the broker
  accepts a later batch, all deferred batches before it were written. Otherwise, the outcome of the
  deferred batches cannot be known, and they fail.
- A broker that has lost all state, as for a recreated topic, may accept a batch after rejecting an
  earlier one, or restart its offsets. Then the previous conclusion is invalid: the rejected batch
  fails, because it would be written out of order, and deferred batches do not count as written.

Each partition has its own epoch, as in brokers, so a problem in one partition does not stop the
others. Kafka's own producer instead increments the epoch for all partitions, and it also renumbers
batches in doubt.

Source: KIP-98, KIP-185, KIP-360; Kafka 4.3 TransactionManager, TxnPartitionEntry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Generic, NamedTuple, TypeVar

NO_SEQUENCE = -1
# An epoch is a 16-bit integer in the protocol.
MAX_EPOCH = 0x7FFF
# Source: Kafka 4.3 ProducerStateEntry.NUM_BATCHES_TO_RETAIN.
REMEMBERED_BATCHES = 5
"""The number of a producer's recent batches that a broker recognizes."""
# Sequence numbers are nonnegative 32-bit integers and wrap around.
_SEQUENCE_MODULUS = 1 << 31


class ProducerIdentity(NamedTuple):
    """A producer ID and epoch; they identify a producer to brokers."""

    producer_id: int
    epoch: int


class SequencedBatch:
    """A batch's numbers and state. Until it is sent, identity and sequence are None and -1."""

    __slots__ = ("base_sequence", "identity", "in_doubt", "is_deferred", "is_settled", "on_wire")

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None
        self.base_sequence = NO_SEQUENCE
        self.on_wire = False
        """Sent, and its request is still in flight."""
        self.in_doubt = False
        """It may have been written: a response to it is missing."""
        self.is_deferred = False
        self.is_settled = False
        """Written, or never to be retried."""

    def unanswered(self) -> None:
        """Record that a request failed, so the batch may or may not have been written."""
        self.on_wire = False
        self.in_doubt = True

    def refused(self) -> None:
        """Record that the request has ended without writing the batch."""
        self.on_wire = False

    @property
    def count(self) -> int:
        """The number of records, and therefore of sequence numbers."""
        raise NotImplementedError


B = TypeVar("B", bound=SequencedBatch)


class PartitionSequences(Generic[B]):
    """The sequence numbers of one partition. Use only in the engine's thread."""

    def __init__(self, *, window_max: int = REMEMBERED_BATCHES) -> None:
        self.identity: ProducerIdentity | None = None
        """None before the first batch, and when another producer ID is needed."""
        self.past_producer_id = -1
        """The producer ID that can no longer be used."""
        self.is_broken = False
        """Sequence numbers may be missing from the log."""
        self._next_sequence = 0
        self._end_offset = -1
        """The offset after the last batch whose offset the broker returned."""
        self._is_known = False
        """The broker has accepted a batch of this identity."""
        self._newest_is_written = False
        self._window_max = min(window_max, REMEMBERED_BATCHES)
        self._window: deque[B] = deque()
        """Batches from the oldest unsettled one to the newest sent, in order."""

    def may_send(self, batch: B) -> bool:
        """Return whether `batch`, the first in the partition's queue, may be sent now."""
        if batch.base_sequence == NO_SEQUENCE:
            # A broker that does not know the producer accepts any number. It could accept a later
            # batch first, so no other batch is sent until the first is written.
            allowed = self._window_max if self._is_known else 1
            return not self.is_broken and len(self._window) < allowed
        if self.is_broken and not batch.in_doubt:
            return False  # `recover` will clear its numbers.
        # Retries are sent one at a time, oldest first, because the broker compares each batch with
        # the last batch that it wrote.
        return next((x for x in self._unsettled() if not x.is_deferred), None) is batch

    def begin_unknown(self) -> None:
        """Record that the topic was recreated, so that its brokers do not know this producer."""
        self._is_known = False

    def sent(self, batch: B, identity: ProducerIdentity) -> None:
        """Record that `batch` is sent now, with the next numbers unless it already has numbers.

        If the partition has no identity yet, it takes the producer's `identity`.
        """
        # A retry keeps its numbers, so that the broker can recognize it.
        if batch.base_sequence == NO_SEQUENCE:
            if self.identity is None:
                self.identity = identity
            batch.identity, batch.base_sequence = self.identity, self._next_sequence
            self._next_sequence = _end_sequence(batch)
            # This batch is now the newest, and it has no response yet.
            self._newest_is_written = False
            self._window.append(batch)
        batch.on_wire = True

    def written(self, batch: B, base_offset: int = -1) -> list[B]:
        """Record that `batch` was written; return the deferred batches that were written before it.

        The oldest batch is first. `base_offset` is -1 if unknown.
        """
        batch.on_wire = False
        # A broker accepts numbers only in order, so deferred batches before a written batch must
        # have been written.
        before = list(takewhile(lambda earlier: earlier is not batch, self._unsettled()))
        found = [earlier for earlier in before if earlier.is_deferred]
        if base_offset >= 0:
            if base_offset < self._end_offset + sum(earlier.count for earlier in found):
                # The offsets leave no room for these batches: this is not the log to which they
                # were sent.
                found = []
            self._end_offset = base_offset + batch.count
        for earlier in found:
            earlier.is_settled = True
        batch.is_settled = self._is_known = True
        if _end_sequence(batch) == self._next_sequence:
            self._newest_is_written = True
        self._advance()
        return found

    def overtaken(self, batch: B) -> list[B]:
        """Return unwritten batches that precede `batch`; they fail, to preserve the order."""
        before = takewhile(lambda earlier: earlier is not batch, self._unsettled())
        # A batch in doubt or deferred may have been written before `batch` after all.
        late = [x for x in before if not (x.on_wire or x.in_doubt or x.is_deferred)]
        for earlier in late:
            earlier.is_settled = self.is_broken = True
        return late

    def out_of_order(self, batch: B) -> bool:
        """Handle a rejection of `batch` as out of order, and return whether to retry it.

        If the batch is not retried, it is deferred until `written` or `recover` decides its
        outcome.
        """
        batch.on_wire = False
        # The broker may have written and forgotten the batch, or an earlier batch may be missing.
        # The error is the same in both cases.
        if batch.in_doubt:
            batch.is_deferred = self.is_broken = True
            return False
        if next(self._unsettled(), None) is batch:
            # All earlier batches are settled, so no batch will fill the gap.
            self.is_broken = True
        return True

    def unknown_producer(self, batch: B, *, is_fenced: bool = False) -> bool:
        """Handle the loss of the producer's state in the broker, or a newer epoch of its ID.

        Returns whether to retry `batch` with new numbers; a batch in doubt must not get new
        numbers.
        """
        batch.on_wire = False
        self.is_broken = True
        if is_fenced:
            # The broker knows a newer epoch of the ID, so it would also fence the next epoch.
            self._drop_producer_id()
        return not batch.in_doubt

    def give_up(self, batch: B) -> None:
        """Record that `batch` will not be retried, whether or not it was written.

        If the batch is in flight, call this again when its request has ended.
        """
        if batch.base_sequence == NO_SEQUENCE or batch.is_settled:
            return
        # The batch's numbers may now be missing from the log. Only a new epoch, or a later batch
        # that is written, closes the gap.
        self.is_broken = True
        if not batch.on_wire:
            batch.is_settled = True
            self._advance()

    def replace(self, batch: B, parts: Sequence[B]) -> None:
        """Replace `batch`, which was not written, with `parts`, which share its numbers."""
        batch.on_wire = False
        sequence = batch.base_sequence
        for part in parts:
            part.identity, part.base_sequence = batch.identity, sequence
            part.in_doubt = batch.in_doubt
            sequence = _end_sequence(part)
        batch.is_settled = True
        sent: list[B] = []
        # The parts must be sent in the order of their numbers, so they take the batch's place.
        for earlier in self._window:
            sent.extend(parts if earlier is batch else (earlier,))
        self._window = deque(sent)

    def recover(self) -> tuple[list[B], list[B]]:
        """Resume after missing numbers, as soon as possible.

        Returns the batches that fail because their outcome cannot be known, and the batches that
        get new numbers. The call has no effect while a response is outstanding or a batch in doubt
        must be retried.
        """
        unsettled = list(self._unsettled())
        if not self.is_broken or _is_undecided(unsettled):
            return [], []
        lost = [batch for batch in unsettled if batch.is_deferred]
        renumbered = [batch for batch in unsettled if not batch.is_deferred]
        for batch in lost:
            batch.is_settled = True
        # If the newest batch was written, the log has no gap after it and the numbers continue.
        if renumbered or self.identity is None or not self._newest_is_written:
            self._restart_numbers(renumbered)
        self.is_broken = False
        return lost, renumbered

    def _restart_numbers(self, batches: list[B]) -> None:
        """Restart at 0 with the next epoch or producer ID, and clear the numbers of `batches`."""
        if self.identity is not None:
            # KIP-360: the next epoch restarts the numbers without a request to a broker.
            if self.identity.epoch < MAX_EPOCH:
                self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
            else:
                # The epoch has reached its maximum, so a new producer ID is needed.
                self._drop_producer_id()
        self._next_sequence = 0
        self._is_known = self._newest_is_written = False
        self._window.clear()
        for batch in batches:
            # These batches were certainly not written, so new numbers cannot duplicate them.
            batch.identity, batch.base_sequence, batch.in_doubt = None, NO_SEQUENCE, False

    def _drop_producer_id(self) -> None:
        if self.identity is not None:
            self.past_producer_id = self.identity.producer_id
            self.identity = None

    def _unsettled(self) -> Iterator[B]:
        return (batch for batch in self._window if not batch.is_settled)

    def _advance(self) -> None:
        while self._window and self._window[0].is_settled:
            self._window.popleft()


def _is_undecided(unsettled: Sequence[SequencedBatch]) -> bool:
    """Return whether a response or a retry may still decide the outcome of these batches.

    `unsettled` is sorted, oldest first.
    """
    # The response to a batch in flight may settle the others.
    for batch in unsettled:
        if batch.on_wire:
            return True
    # Only the oldest batch that is not deferred matters: if it was certainly not written, neither
    # was any later batch.
    for batch in unsettled:
        if not batch.is_deferred:
            return batch.in_doubt
    return False


def _end_sequence(batch: SequencedBatch) -> int:
    """Return the sequence number after the last number of `batch`; 0 follows 2^31 - 1."""
    return (batch.base_sequence + batch.count) % _SEQUENCE_MODULUS
