"""What state a producer's transactions are in: pure, no clock, no wire.

    UNINITIALIZED     has no producer id; `init_transactions` gets one
    INITIALIZING      has asked for it
    READY             may begin a transaction
    IN_TRANSACTION    records may be sent
    COMMITTING        no more may be; those there are go, then the coordinator is told
    ABORTING          none goes any more; those under way are waited for, then it is told
    ABORTABLE_ERROR   something was not written: the transaction can only be aborted
    FATAL_ERROR       fenced by another producer, or not allowed: nothing is possible any more

Which partitions are in the transaction is known here, too. In transactions of version 1 the
coordinator is told of a partition before its first batch goes (`admits` says no until then); in
version 2 (KIP-890) its leader does that, and each transaction has an epoch of its own, which the
coordinator gives out with the end of the one before. In version 1 the epoch stays, unless sequence
numbers may be missing, or a late request might do harm: then `needs_new_epoch`.

Source: Kafka 4.3 TransactionManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, IntEnum

from plog.client.errors import IllegalState
from plog.client.producer.sequence_numbers import ProducerIdentity
from plog.client.transactions.error_classification import abortable
from plog.types import TopicPartition

LAST_PRODUCE_VERSION_1 = 11
"""From the next version of Produce on, a partition is in the transaction by being written to."""


class Phase(Enum):
    """See the module's text."""

    UNINITIALIZED = "init_transactions() was not called yet"
    INITIALIZING = "init_transactions() is under way"
    READY = "no transaction was begun"
    IN_TRANSACTION = "a transaction is under way"
    COMMITTING = "the transaction is being committed"
    ABORTING = "the transaction is being aborted"
    ABORTABLE_ERROR = "the transaction has failed"
    FATAL_ERROR = "the producer can do nothing more"


class Begun(IntEnum):
    """Whether the coordinator knows of the transaction, so that it has to be told of its end."""

    NO = 0
    PERHAPS = 1
    """It was asked to add to it, and the answer is missing."""
    YES = 2


class TransactionState:
    """See the module's text. Engine's thread only, but for `check_may_send` and `send_failed`."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.UNINITIALIZED
        self.identity: ProducerIdentity | None = None
        self.is_v2 = False
        """Which version of transactions this one is of."""
        self.number = 0
        """How many have been begun."""
        self.begun = Begun.NO
        self.needs_new_epoch = False
        self.is_forgotten = False
        """The coordinator does not know the producer id any more, nor a transaction of it."""
        self.on_new_partition: Callable[[], None] = lambda: None
        """Called when there is a partition of which the coordinator has to be told."""
        self._error: Exception | None = None
        self._send_error: Exception | None = None
        self._partitions: set[TopicPartition] = set()
        self._new: dict[TopicPartition, None] = {}

    # -- records --------------------------------------------------------------------------------

    def check_may_send(self) -> None:
        """Raise why no record may be sent now, if so. Any thread."""
        if self.phase is not Phase.IN_TRANSACTION:
            self._expect(Phase.IN_TRANSACTION, "send()")

    def send_failed(self, error: Exception) -> None:
        """`send` has raised `error`: whatever becomes of the others, one record is missing.

        Any thread.
        """
        self._send_error = error

    @property
    def may_retry(self) -> bool:
        """Whether a batch that was sent in vain is to be sent again."""
        return self.phase in (Phase.IN_TRANSACTION, Phase.COMMITTING)

    def admits(self, partition: TopicPartition) -> bool:
        """Whether a batch of `partition` may go; asks for what is needed for it if not."""
        if not self.may_retry:
            return False
        if partition in self._partitions:
            return True
        if self.is_v2:
            self._partitions.add(partition)
            self.begun = Begun.YES
            return True
        if partition not in self._new:
            self._new[partition] = None
            self.on_new_partition()
        return False

    def produce_version(self, highest: int) -> int:
        """The version of Produce to send where both sides speak up to `highest`."""
        return highest if self.is_v2 else min(highest, LAST_PRODUCE_VERSION_1)

    # -- what is in the transaction -------------------------------------------------------------

    @property
    def new_partitions(self) -> list[TopicPartition]:
        """Those that batches wait for, and that are not in it yet."""
        return list(self._new)

    def asking_to_add(self) -> None:
        """The coordinator is asked to add something, now: from here on it may have begun."""
        self.begun = max(self.begun, Begun.PERHAPS)

    def added(self, partitions: Collection[TopicPartition] = ()) -> None:
        """The coordinator has added what it was asked for."""
        self.begun = Begun.YES
        self._partitions.update(partitions)
        for partition in partitions:
            self._new.pop(partition, None)

    # -- what may follow ------------------------------------------------------------------------

    def begin_init(self) -> None:
        """The producer id is asked for. Raises IllegalState if there is one."""
        self._expect(Phase.UNINITIALIZED, "init_transactions()")
        self.phase = Phase.INITIALIZING

    def init_failed(self) -> None:
        """There is none; it may be asked for again."""
        self.phase = Phase.UNINITIALIZED

    def initialized(self, identity: ProducerIdentity) -> None:
        """Here it is."""
        self.identity = identity
        self.phase = Phase.READY

    def check_may_begin(self) -> None:
        """Raise why no transaction may begin, if so."""
        self._expect(Phase.READY, "begin_transaction()")

    def begin(self, *, is_v2: bool) -> None:
        """A transaction begins; the coordinator hears of it when there is something in it."""
        self.check_may_begin()
        self.phase = Phase.IN_TRANSACTION
        self.is_v2 = is_v2
        self.number += 1
        self._send_error = None  # Of one that came too late for the last.

    def check_may_add_offsets(self) -> None:
        """Raise why no offsets may be committed with the transaction, if so."""
        self._expect(Phase.IN_TRANSACTION, "send_offsets_to_transaction()")

    def check_may_commit(self) -> None:
        """Raise why it cannot be committed, if so: TransactionAbortable if it has to be aborted."""
        if self.phase is Phase.IN_TRANSACTION and self._send_error is not None:
            self.spoil(self._send_error)
        self._expect(Phase.IN_TRANSACTION, "commit_transaction()")

    def begin_commit(self) -> None:
        """No more records: those there are go, then it ends. Raises as `check_may_commit`."""
        self.check_may_commit()
        self.phase = Phase.COMMITTING

    def begin_abort(self) -> None:
        """No record goes any more. Raises IllegalState if there is nothing to abort."""
        if self.phase is not Phase.ABORTABLE_ERROR:
            self._expect(Phase.IN_TRANSACTION, "abort_transaction()")
        self.phase = Phase.ABORTING
        self.needs_new_epoch |= self.begun is Begun.PERHAPS

    def ended(self, identity: ProducerIdentity) -> None:
        """It is over; `identity` is the next one's."""
        self.phase = Phase.READY
        self.identity = identity
        self.begun = Begun.NO
        self.needs_new_epoch = self.is_forgotten = False
        self._error = self._send_error = None
        self._partitions.clear()
        self._new.clear()

    # -- what goes wrong ------------------------------------------------------------------------

    def spoil(self, error: Exception) -> None:
        """It cannot be committed any more, because of `error`: only aborted."""
        if self.may_retry:
            self.phase = Phase.ABORTABLE_ERROR
            self._error = abortable(error, self.transactional_id)

    def lose(self, error: Exception) -> None:
        """Nothing is possible any more, because of `error`."""
        if self.phase is not Phase.FATAL_ERROR:
            self.phase = Phase.FATAL_ERROR
            self._error = error

    def raise_error(self) -> None:
        """Raise what has gone wrong, if anything has."""
        if self._error is not None:  # Each time anew: tracebacks would pile up on one.
            raise type(self._error)(*self._error.args) from self._error.__cause__

    def _expect(self, phase: Phase, call: str) -> None:
        if self.phase is phase:
            return
        self.raise_error()
        raise IllegalState(
            f"transactional.id={self.transactional_id}: {call} is not possible now:"
            f" {self.phase.value}"
        )
