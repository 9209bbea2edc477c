"""Sequence numbers: which batch of an idempotent producer may be sent, and under which numbers.

Pure: no clock, no queue, no wire. batch_completion.py tells what became of a batch, sender.py asks
what may go next. A broker remembers, for each partition and producer id, the epoch, the last
sequence number and the last five batches. It takes a batch only if it is the next one, answers one
that it remembers as it did before, and calls all else out of order. From that follows everything
here:

- A batch keeps its numbers until it is settled. To send it again under them is always harmless.
- It gets other numbers only where every answer to it said that it was not written. Where an answer
  is missing (a lost connection, a timeout, a leader that had to go) it is in *doubt*, for ever.
- At most five batches lie between the oldest unsettled one and the newest, for the broker does not
  remember more. What is sent again goes alone, oldest first.
- Of a producer it does not know, a broker takes any number. So the first batch goes alone, until it
  is written: else one behind it could be taken where it is refused. So does the first one to a
  topic that is known to have been made anew.
- Where a batch is given up, its numbers may be missing in the log. Nothing new is sent then until
  all that was sent is settled. If the newest batch was written the numbers go on; else they begin
  anew in the next epoch (KIP-360), and with them those batches that certainly were not written.
- A batch in doubt that is called out of order may have been written and forgotten: a broker that
  was restarted remembers one batch only. It is put aside, and the batches behind it are tried.
  Where one is taken, so had been all before it; else nobody can know, and those put aside fail.
- A broker that has forgotten all, as for a topic made anew, may take a batch behind one it refused,
  or begin its offsets anew. Then neither holds: the one refused fails, for it would come out of its
  order, and those put aside are not taken for written.

Epochs are counted for each partition, as brokers do; so the trouble of one stops no other. Kafka's
own producer gives all partitions the new epoch, and new numbers to batches in doubt as well.

Source: KIP-98, KIP-185, KIP-360; Kafka 4.3 TransactionManager, TxnPartitionEntry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Generic, NamedTuple, TypeVar

NO_SEQUENCE = -1
MAX_EPOCH = 0x7FFF
REMEMBERED_BATCHES = 5
"""How many batches of a producer a broker knows again."""
_SEQUENCE_MODULUS = 1 << 31


class ProducerIdentity(NamedTuple):
    """What a broker knows a producer by."""

    producer_id: int
    epoch: int


class SequencedBatch:
    """What the rules know of a batch; its numbers are None and -1 until it is sent."""

    __slots__ = ("base_sequence", "identity", "in_doubt", "is_settled", "on_wire", "put_aside")

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None
        self.base_sequence = NO_SEQUENCE
        self.on_wire = False
        """Sent, and its request has not ended in any way."""
        self.in_doubt = False
        """It may have been written: an answer to it is missing."""
        self.put_aside = False
        self.is_settled = False
        """Written, or never to be sent again."""

    def unanswered(self) -> None:
        """Its request broke: whether it was written is not known, now and for ever."""
        self.on_wire = False
        self.in_doubt = True

    def refused(self) -> None:
        """Its request has ended, and this time it was certainly not written."""
        self.on_wire = False

    @property
    def count(self) -> int:
        """How many records, and so sequence numbers, it has."""
        raise NotImplementedError


B = TypeVar("B", bound=SequencedBatch)


class PartitionSequences(Generic[B]):
    """The numbers of one partition. Engine's thread only."""

    def __init__(self, *, window_max: int = REMEMBERED_BATCHES) -> None:
        self.identity: ProducerIdentity | None = None
        """None before the first batch, and where another producer id is needed."""
        self.past_producer_id = -1
        """The one that cannot be used any more."""
        self.is_broken = False
        """Numbers may be missing in the log."""
        self._next_sequence = 0
        self._end_offset = -1
        """Behind the last batch of which it was told where it is."""
        self._is_known = False
        """The broker has taken a batch of this identity."""
        self._newest_is_written = False
        self._window_max = min(window_max, REMEMBERED_BATCHES)
        self._window: deque[B] = deque()
        """From the oldest batch that is not settled to the newest sent, in their order."""

    def may_send(self, batch: B) -> bool:
        """Whether `batch`, the first of its partition that waits, may be sent now."""
        if batch.base_sequence == NO_SEQUENCE:
            allowed = self._window_max if self._is_known else 1
            return not self.is_broken and len(self._window) < allowed
        if self.is_broken and not batch.in_doubt:
            return False  # It will have other numbers.
        return next((x for x in self._unsettled() if not x.put_aside), None) is batch

    def begin_unknown(self) -> None:
        """The log is another one, as of a topic made anew: its broker knows nothing of us."""
        self._is_known = False

    def sent(self, batch: B, identity: ProducerIdentity) -> None:
        """`batch` goes out now, under its own numbers or the next ones.

        `identity` is the producer's, for a partition that has none yet.
        """
        if batch.base_sequence == NO_SEQUENCE:
            if self.identity is None:
                self.identity = identity
            batch.identity, batch.base_sequence = self.identity, self._next_sequence
            self._next_sequence = _end_sequence(batch)
            self._newest_is_written = False
            self._window.append(batch)
        batch.on_wire = True

    def written(self, batch: B, base_offset: int = -1) -> list[B]:
        """`batch` is in the log; so are the batches put aside that are returned, oldest first.

        `base_offset` is -1 if it is not known where it is.
        """
        batch.on_wire = False
        before = list(takewhile(lambda earlier: earlier is not batch, self._unsettled()))
        found = [earlier for earlier in before if earlier.put_aside]
        if base_offset >= 0:
            if base_offset < self._end_offset + sum(earlier.count for earlier in found):
                found = []  # There is no place for them: it is another log than before.
            self._end_offset = base_offset + batch.count
        for earlier in found:
            earlier.is_settled = True
        batch.is_settled = self._is_known = True
        if _end_sequence(batch) == self._next_sequence:
            self._newest_is_written = True
        self._advance()
        return found

    def overtaken(self, batch: B) -> list[B]:
        """Batches that are not written, and would only be behind `batch`, which is: they fail."""
        before = takewhile(lambda earlier: earlier is not batch, self._unsettled())
        late = [x for x in before if not (x.on_wire or x.in_doubt or x.put_aside)]
        for earlier in late:
            earlier.is_settled = self.is_broken = True
        return late

    def out_of_order(self, batch: B) -> bool:
        """The broker misses numbers before `batch`. Whether it waits to be sent again.

        If it does not, it is put aside until `written` or `mend` tells more.
        """
        batch.on_wire = False
        if batch.in_doubt:
            batch.put_aside = self.is_broken = True
            return False
        if next(self._unsettled(), None) is batch:
            self.is_broken = True  # All before it is settled: nothing else will mend it.
        return True

    def unknown_producer(self, batch: B, *, is_fenced: bool = False) -> bool:
        """The broker does not know the producer any more, or a newer one with its id.

        Whether `batch` waits to be sent again, under other numbers; one in doubt cannot.
        """
        batch.on_wire = False
        self.is_broken = True
        if is_fenced:
            self._leave_producer_id()
        return not batch.in_doubt

    def give_up(self, batch: B) -> None:
        """`batch` will not be sent again, whether it was written or not.

        To be called again when its request has ended, for one that is on the wire.
        """
        if batch.base_sequence == NO_SEQUENCE or batch.is_settled:
            return
        self.is_broken = True
        if not batch.on_wire:
            batch.is_settled = True
            self._advance()

    def replace(self, batch: B, parts: Sequence[B]) -> None:
        """`batch` was not written; `parts` take its place and share its numbers."""
        batch.on_wire = False
        sequence = batch.base_sequence
        for part in parts:
            part.identity, part.base_sequence = batch.identity, sequence
            part.in_doubt = batch.in_doubt
            sequence = _end_sequence(part)
        batch.is_settled = True
        sent: list[B] = []
        for earlier in self._window:
            sent.extend(parts if earlier is batch else (earlier,))
        self._window = deque(sent)

    def mend(self) -> tuple[list[B], list[B]]:
        """Go on behind missing numbers, as soon as that can be done.

        Returns the batches that fail, for nobody will know what became of them, and those that are
        to have new numbers. Does nothing while an answer is to come or one in doubt to be sent.
        """
        unsettled = list(self._unsettled())
        if not self.is_broken or _is_open(unsettled):
            return [], []
        lost = [batch for batch in unsettled if batch.put_aside]
        again = [batch for batch in unsettled if not batch.put_aside]
        for batch in lost:
            batch.is_settled = True
        if again or self.identity is None or not self._newest_is_written:
            self._begin_anew(again)
        self.is_broken = False
        return lost, again

    def _begin_anew(self, batches: list[B]) -> None:
        """Numbers from 0, in the next epoch or of the next producer id; `batches` have none yet."""
        if self.identity is not None:
            if self.identity.epoch < MAX_EPOCH:
                self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
            else:
                self._leave_producer_id()
        self._next_sequence = 0
        self._is_known = self._newest_is_written = False
        self._window.clear()
        for batch in batches:
            batch.identity, batch.base_sequence, batch.in_doubt = None, NO_SEQUENCE, False

    def _leave_producer_id(self) -> None:
        if self.identity is not None:
            self.past_producer_id = self.identity.producer_id
            self.identity = None

    def _unsettled(self) -> Iterator[B]:
        return (batch for batch in self._window if not batch.is_settled)

    def _advance(self) -> None:
        while self._window and self._window[0].is_settled:
            self._window.popleft()


def _is_open(unsettled: Sequence[SequencedBatch]) -> bool:
    """Whether more can be learned of these batches, oldest first, by waiting or sending them.

    Behind one that was certainly not written, none can have been.
    """
    for batch in unsettled:
        if batch.on_wire:
            return True
    for batch in unsettled:
        if not batch.put_aside:
            return batch.in_doubt
    return False


def _end_sequence(batch: SequencedBatch) -> int:
    """The sequence number behind the last one of `batch`; behind 2^31 - 1 comes 0."""
    return (batch.base_sequence + batch.count) % _SEQUENCE_MODULUS
