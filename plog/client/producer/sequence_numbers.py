"""Sequence numbers: which batch of an idempotent producer may be sent, and with which numbers.

Pure: no clock, queue or network. batch_completion.py reports the outcome of a batch, and sender.py
asks which batch may be sent next. For each partition and producer ID, a broker remembers the epoch,
the last sequence number and the last five batches. It accepts only the next batch in sequence,
repeats its response to a remembered batch, and rejects any other batch as out of order. This leads
to the following rules:

- A batch keeps its numbers until it is settled. Sending it again with the same numbers is always
  safe.
- It gets new numbers only if every response to it says that it was not written. If a response is
  missing (a lost connection, a timeout, a deposed leader), the batch is *in doubt* and stays so.
- At most five batches lie between the oldest unsettled one and the newest, because the broker does
  not remember more. Retries are sent one at a time, oldest first.
- A broker that does not know a producer accepts any number. Therefore, the first batch is sent
  alone, until it is written. Otherwise, the broker could accept a later batch and reject the first.
  The same applies to the first batch to a topic that was recreated.
- When a batch fails, its numbers may be missing from the log. No new batch is sent until every
  batch that was sent is settled. If the newest of them was written, the numbers continue. Otherwise
  they restart in the next epoch (KIP-360), and batches that were certainly not written get new
  ones.
- A batch in doubt that is rejected as out of order may have been written and forgotten: a restarted
  broker remembers only one batch. Such a batch is deferred, and later batches are tried. If one of
  them is accepted, all batches before it have been written. If not, the outcome of the deferred
  batches cannot be known, and they fail.
- A broker that has lost all state, as for a recreated topic, may accept a batch after one that it
  rejected, or restart its offsets. Then the conclusion does not hold: the rejected batch fails,
  because it would be written out of order, and deferred batches are not assumed to be written.

Epochs are counted per partition, as in brokers, so a problem in one partition does not stop the
others. Kafka's own producer instead raises the epoch for all partitions and renumbers batches in
doubt as well.

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
"""Number of recent batches of a producer that a broker recognizes."""
# Sequence numbers are nonnegative 32-bit integers and wrap around.
_SEQUENCE_MODULUS = 1 << 31


class ProducerIdentity(NamedTuple):
    """A producer ID and epoch, by which a broker identifies a producer."""

    producer_id: int
    epoch: int


class SequencedBatch:
    """The numbers and state of a batch; identity and sequence are None and -1 until it is sent."""

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
        """Record that a request failed, so it remains unknown whether the batch was written."""
        self.on_wire = False
        self.in_doubt = True

    def refused(self) -> None:
        """Record that the request has ended and certainly did not write the batch."""
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
            # A broker that does not know the producer accepts any number, so the first batch is
            # sent alone.
            allowed = self._window_max if self._is_known else 1
            return not self.is_broken and len(self._window) < allowed
        if self.is_broken and not batch.in_doubt:
            return False  # `recover` will clear its numbers.
        # Retries are sent one at a time, oldest first: the broker checks each against the last
        # batch that it wrote.
        return next((x for x in self._unsettled() if not x.is_deferred), None) is batch

    def begin_unknown(self) -> None:
        """Record that the topic was recreated, so that its brokers do not know this producer."""
        self._is_known = False

    def sent(self, batch: B, identity: ProducerIdentity) -> None:
        """Record that `batch` is sent now, with its own numbers or the next ones.

        `identity` is the producer's; it is used if the partition has none yet.
        """
        # A retry keeps its numbers, so that the broker can recognize it.
        if batch.base_sequence == NO_SEQUENCE:
            if self.identity is None:
                self.identity = identity
            batch.identity, batch.base_sequence = self.identity, self._next_sequence
            self._next_sequence = _end_sequence(batch)
            # The newest batch is now this one, which has no response yet.
            self._newest_is_written = False
            self._window.append(batch)
        batch.on_wire = True

    def written(self, batch: B, base_offset: int = -1) -> list[B]:
        """Record that `batch` was written; return deferred batches that also were, oldest first.

        `base_offset` is -1 if unknown.
        """
        batch.on_wire = False
        # Deferred batches that precede a written one must have been written: the broker accepts
        # numbers only in order.
        before = list(takewhile(lambda earlier: earlier is not batch, self._unsettled()))
        found = [earlier for earlier in before if earlier.is_deferred]
        if base_offset >= 0:
            if base_offset < self._end_offset + sum(earlier.count for earlier in found):
                # The offsets leave no room for them, so this is not the log to which they were
                # sent.
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
        """Return the unwritten batches that could now be written only after `batch`: they fail."""
        before = takewhile(lambda earlier: earlier is not batch, self._unsettled())
        # A batch in doubt or deferred may have been written before this one after all.
        late = [x for x in before if not (x.on_wire or x.in_doubt or x.is_deferred)]
        for earlier in late:
            earlier.is_settled = self.is_broken = True
        return late

    def out_of_order(self, batch: B) -> bool:
        """Handle a rejection of `batch` as out of order, and return whether to retry it.

        A batch that is not retried is deferred until `written` or `recover` decides its outcome.
        """
        batch.on_wire = False
        # It was written and forgotten, or a batch before it is missing: the broker does not say
        # which.
        if batch.in_doubt:
            batch.is_deferred = self.is_broken = True
            return False
        if next(self._unsettled(), None) is batch:
            self.is_broken = True  # All earlier batches are settled: none will fill the gap.
        return True

    def unknown_producer(self, batch: B, *, is_fenced: bool = False) -> bool:
        """Handle the broker's loss of the producer's state, or a newer epoch of the producer's ID.

        Returns whether to retry `batch` with new numbers, which a batch in doubt must not get.
        """
        batch.on_wire = False
        self.is_broken = True
        if is_fenced:
            # The broker knows a newer epoch of the ID, so it would fence this producer again.
            self._drop_producer_id()
        return not batch.in_doubt

    def give_up(self, batch: B) -> None:
        """Record that `batch` will not be retried, whether or not it was written.

        If it is in flight, call this again when its request has ended.
        """
        if batch.base_sequence == NO_SEQUENCE or batch.is_settled:
            return
        # Its numbers may now be missing from the log. Only a new epoch, or a later batch that is
        # written, resolves this.
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
        # The parts take the place of the batch, so that they are sent in the order of their
        # numbers.
        for earlier in self._window:
            sent.extend(parts if earlier is batch else (earlier,))
        self._window = deque(sent)

    def recover(self) -> tuple[list[B], list[B]]:
        """Continue after missing numbers, as soon as that is possible.

        Returns the batches that fail because their outcome cannot be known, and those that get new
        numbers. Has no effect while a response is outstanding or a batch in doubt must be retried.
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
                # The epoch cannot grow any further, so a new producer ID is needed.
                self._drop_producer_id()
        self._next_sequence = 0
        self._is_known = self._newest_is_written = False
        self._window.clear()
        for batch in batches:
            # They were certainly not written, so new numbers cannot duplicate them.
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
    """Return whether a response to, or a retry of, one of these batches may decide their outcome.

    `unsettled` is sorted, oldest first.
    """
    # The response to a batch in flight may settle the others.
    for batch in unsettled:
        if batch.on_wire:
            return True
    # Only the oldest batch that is not deferred matters: if it was certainly not written, no later
    # batch was written either.
    for batch in unsettled:
        if not batch.is_deferred:
            return batch.in_doubt
    return False


def _end_sequence(batch: SequencedBatch) -> int:
    """Return the sequence number after the last one of `batch`; 2^31 - 1 is followed by 0."""
    return (batch.base_sequence + batch.count) % _SEQUENCE_MODULUS
