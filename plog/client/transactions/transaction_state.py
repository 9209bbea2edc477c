"""The state of a producer's transactions.

    UNINITIALIZED     no producer ID yet; `init_transactions` requests one
    INITIALIZING      waiting for the producer ID
    READY             a transaction may begin
    IN_TRANSACTION    records may be sent
    COMMITTING        no more records; once all are written, the coordinator commits
    ABORTING          nothing is sent; once no request is in flight, the coordinator aborts
    ABORTABLE_ERROR   a record was not written: the transaction can only be aborted
    FATAL_ERROR       fenced by another producer, or not authorized: the producer must be closed

The state includes the partitions of the transaction. In version 1 of transactions, the producer
adds a partition at the coordinator before it sends the first batch; until then, `admits` returns
False. In version 2 (KIP-890), the partition's leader adds the partition. Each transaction of
version 2 has its own epoch, which the coordinator returns at the end of the previous transaction.
In version 1, the epoch changes only if sequence numbers may be missing or a late request could do
harm; `needs_new_epoch` records that.

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
"""The last version of Produce that does not add its partitions to the transaction."""


class Phase(Enum):
    """The phase of a producer's transactions; the values are part of IllegalState's messages."""

    UNINITIALIZED = "init_transactions() has not been called"
    INITIALIZING = "init_transactions() is in progress"
    READY = "no transaction has begun"
    IN_TRANSACTION = "a transaction is in progress"
    COMMITTING = "the transaction is being committed"
    ABORTING = "the transaction is being aborted"
    ABORTABLE_ERROR = "the transaction has failed"
    FATAL_ERROR = "the producer has failed and must be closed"


class Begun(IntEnum):
    """Whether the coordinator knows the transaction, in which case EndTxn must be sent."""

    NO = 0
    PERHAPS = 1
    """A request that adds to the transaction was sent, but no response has arrived."""
    YES = 2


class TransactionState:
    """The state of one producer's transactions.

    Use only in the engine's thread, except for `check_may_send` and `send_failed`.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.UNINITIALIZED
        self.identity: ProducerIdentity | None = None
        self.is_v2 = False
        """Whether the current transaction uses version 2."""
        self.number = 0
        """Number of transactions begun."""
        self.begun = Begun.NO
        # Set if sequence numbers may be missing or a late request could do harm (KIP-360).
        self.needs_new_epoch = False
        self.is_forgotten = False
        """The coordinator no longer knows the producer ID or any of its transactions."""
        self.on_new_partition: Callable[[], None] = lambda: None
        """Called when a partition must be added at the coordinator."""
        self.on_end: Callable[[bool], None] = lambda _: None
        """Called when a transaction ends, with whether it was committed."""
        self._error: Exception | None = None
        self._send_error: Exception | None = None
        self._partitions: set[TopicPartition] = set()
        self._new: dict[TopicPartition, None] = {}

    # -- records --------------------------------------------------------------------------------

    def check_may_send(self) -> None:
        """Raise an error if records may not be sent now. Any thread may call this."""
        if self.phase is not Phase.IN_TRANSACTION:
            self._expect(Phase.IN_TRANSACTION, "send()")

    def send_failed(self, error: Exception) -> None:
        """Record that `send` raised `error`: the transaction lacks a record. Thread-safe."""
        self._send_error = error

    @property
    def may_retry(self) -> bool:
        """Whether failed batches may be retried."""
        return self.phase in (Phase.IN_TRANSACTION, Phase.COMMITTING)

    def admits(self, partition: TopicPartition) -> bool:
        """Return whether a batch of `partition` may be sent; if not, request its addition."""
        if not self.may_retry:
            return False
        if partition in self._partitions:
            return True
        # KIP-890: the leader adds the partition when the first batch arrives.
        if self.is_v2:
            self._partitions.add(partition)
            self.begun = Begun.YES
            return True
        if partition not in self._new:
            self._new[partition] = None
            self.on_new_partition()
        return False

    def produce_version(self, highest: int) -> int:
        """Return the version of Produce to use if both sides support versions up to `highest`."""
        return highest if self.is_v2 else min(highest, LAST_PRODUCE_VERSION_1)

    # -- the contents of the transaction --------------------------------------------------------

    @property
    def new_partitions(self) -> list[TopicPartition]:
        """Partitions that have waiting batches but are not yet part of the transaction."""
        return list(self._new)

    def begin_adding(self) -> None:
        """Record that a request adds to the transaction, which may therefore have begun."""
        self.begun = max(self.begun, Begun.PERHAPS)

    def added(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Record that the coordinator has added `partitions`, or a group's offsets."""
        self.begun = Begun.YES
        self._partitions.update(partitions)
        for partition in partitions:
            self._new.pop(partition, None)

    # -- phases ---------------------------------------------------------------------------------

    def begin_init(self) -> None:
        """Record the request for a producer ID. Raises IllegalState if the producer has an ID."""
        self._expect(Phase.UNINITIALIZED, "init_transactions()")
        self.phase = Phase.INITIALIZING

    def init_failed(self) -> None:
        """Record that the request failed; it may be repeated."""
        self.phase = Phase.UNINITIALIZED

    def initialized(self, identity: ProducerIdentity) -> None:
        """Record the producer ID and epoch."""
        self.identity = identity
        self.phase = Phase.READY

    def check_may_begin(self) -> None:
        """Raise an error if no transaction may begin now."""
        self._expect(Phase.READY, "begin_transaction()")

    def begin(self, *, is_v2: bool) -> None:
        """Begin a transaction; the coordinator learns of it with the first addition."""
        self.check_may_begin()
        self.phase = Phase.IN_TRANSACTION
        self.is_v2 = is_v2
        self.number += 1
        # A `send` in the previous transaction may have failed after the transaction ended.
        self._send_error = None

    def check_may_add_offsets(self) -> None:
        """Raise an error if offsets may not be added to the transaction now."""
        self._expect(Phase.IN_TRANSACTION, "send_offsets_to_transaction()")

    def check_may_commit(self) -> None:
        """Raise an error if the transaction cannot be committed.

        Raises TransactionAbortable if it must be aborted.
        """
        # If `send` has rejected a record, it is missing from the transaction, which must not
        # commit.
        if self.phase is Phase.IN_TRANSACTION and self._send_error is not None:
            self.fail_transaction(self._send_error)
        self._expect(Phase.IN_TRANSACTION, "commit_transaction()")

    def begin_commit(self) -> None:
        """Stop accepting records. Raises the same errors as `check_may_commit`."""
        self.check_may_commit()
        self.phase = Phase.COMMITTING

    def begin_abort(self) -> None:
        """Stop sending. Raises IllegalState if there is nothing to abort."""
        if self.phase is not Phase.ABORTABLE_ERROR:
            self._expect(Phase.IN_TRANSACTION, "abort_transaction()")
        self.phase = Phase.ABORTING
        # A request without a response may still reach the coordinator after the abort (KIP-360).
        self.needs_new_epoch |= self.begun is Begun.PERHAPS

    def ended(self, identity: ProducerIdentity) -> None:
        """End the transaction; `identity` is for the next transaction."""
        self.on_end(self.phase is Phase.COMMITTING)
        self.phase = Phase.READY
        self.identity = identity
        self.begun = Begun.NO
        self.needs_new_epoch = self.is_forgotten = False
        self._error = self._send_error = None
        self._partitions.clear()
        self._new.clear()

    # -- errors ---------------------------------------------------------------------------------

    def fail_transaction(self, error: Exception) -> None:
        """Record that the transaction can only be aborted, because of `error`."""
        # A fatal error or an abort in progress takes precedence.
        if self.may_retry:
            self.phase = Phase.ABORTABLE_ERROR
            self._error = abortable(error, self.transactional_id)

    def fail_producer(self, error: Exception) -> None:
        """Record that the producer must be closed, because of `error`."""
        if self.phase is not Phase.FATAL_ERROR:
            self.phase = Phase.FATAL_ERROR
            self._error = error

    def raise_error(self) -> None:
        """Raise the recorded error, if there is one."""
        # Raise a new instance each time: a single instance would accumulate tracebacks.
        if self._error is not None:
            raise type(self._error)(*self._error.args) from self._error.__cause__

    def _expect(self, phase: Phase, call: str) -> None:
        if self.phase is phase:
            return
        # A recorded error explains more than the phase.
        self.raise_error()
        raise IllegalState(
            f"cannot call {call} for transactional.id={self.transactional_id}: {self.phase.value}"
        )
