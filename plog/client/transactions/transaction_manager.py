"""The transaction manager: it implements an application's transaction calls.

If a call times out or is cancelled, its work continues. Repeating the call waits for the same
outcome; until the outcome is known, any other call raises IllegalState.

    commit   wait until all records, including records that wait for their topic, have an outcome;
             if all were written, send EndTxn
    abort    stop sending, wait for the requests in flight, then send EndTxn
    then     in version 1, if sequence numbers may be missing: get the next epoch (KIP-360)

Source: Kafka 4.3 TransactionManager, Sender.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from plog.client.errors import ClosedError, IllegalState, TransactionAborted
from plog.client.group.group_metadata import GroupMetadata
from plog.client.network.ports import Cancelled, Network, Task
from plog.client.transactions.coordinator import TransactionCoordinator
from plog.client.transactions.error_classification import (
    Verdict,
    explained,
    verdict_of,
    verdict_of_batch,
)
from plog.client.transactions.transaction_state import Begun, Phase, TransactionState
from plog.client.values import OffsetAndMetadata
from plog.errors import (
    ErrorCode,
    KafkaError,
    PlogError,
    RequestTimedOut,
    TransactionAbortable,
)
from plog.types import TopicPartition
from plog.wire.schema import WireError

log = logging.getLogger("plog.client")

_ABORT = "abort_transaction()"


class Outbox(Protocol):
    """The operations on a producer's records that the transaction manager needs."""

    async def wait_for_blocked(self) -> None:
        """Wait until all blocked sends have added their records or failed."""

    async def finish(self) -> None:
        """Send all buffered records, and wait until every record has its outcome."""

    def drop(self, error: Exception) -> None:
        """Fail all records that are not in flight with `error`."""

    async def discard(self, error: Exception) -> None:
        """Fail all records that are not in flight, and wait until no request is in flight."""

    def wake(self) -> None:
        """Wake the sender."""

    def close_gate(self, change: Callable[[], None]) -> None:
        """Call `change` while no thread is inside `send`."""


class _Call:
    """A call in progress, and its outcome."""

    def __init__(self, network: Network, name: str, work: Coroutine[Any, Any, None]) -> None:
        self.name = name
        self._ended = network.signal()
        self._error: Exception | None = None
        self._task = network.spawn(self._run(work), name)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Cancelled:
            self._error = ClosedError(f"{self.name} failed: the producer was closed")
        except Exception as error:
            # Log a bug in plog; the waiting calls also raise the exception.
            if not isinstance(error, PlogError | WireError):
                log.exception("%s failed", self.name)
            self._error = error
        self._ended.set()

    async def wait(self, timeout_s: float | None) -> bool:
        """Return whether the call completed in time. Raises the call's error."""
        if not await self._ended.wait(timeout_s):
            return False
        if self._error is not None:
            raise self._error
        return True

    async def ended(self, timeout_s: float | None = None) -> bool:
        """Return whether the call completed in time, with or without an error."""
        return await self._ended.wait(timeout_s)

    def cancel(self) -> None:
        """Cancel the call."""
        self._task.cancel()


class TransactionManager:
    """The transactions of one producer. Use only in the engine's thread."""

    def __init__(
        self,
        network: Network,
        state: TransactionState,
        coordinator: TransactionCoordinator,
        outbox: Outbox,
        *,
        timeout_s: float,
        transaction_timeout_ms: int,
    ) -> None:
        self.state = state
        self._network = network
        self._coordinator = coordinator
        self._outbox = outbox
        self._timeout_s = timeout_s
        self._transaction_timeout_ms = transaction_timeout_ms
        self._call: _Call | None = None
        self._late: list[_Call] = []
        """Abandoned calls whose requests may still be in flight."""
        self._adder: Task | None = None
        self._is_adding = False
        state.on_new_partition = self._start_adder

    # -- calls by the application ---------------------------------------------------------------

    async def init(self, timeout_s: float | None = None) -> None:
        """Implement `TransactionCalls.init_transactions`."""
        await self._run_call("init_transactions()", self.state.begin_init, self._init, timeout_s)

    async def begin(self) -> None:
        """Implement `TransactionCalls.begin_transaction`."""
        # The abort of a `with` block may still be in progress, because context_manager.py waits for
        # it only briefly.
        if self._call is not None and self._call.name == _ABORT:
            await self.abort()
        await self._run_call("begin_transaction()", self.state.check_may_begin, self._begin, None)

    async def add_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        timeout_s: float | None = None,
    ) -> None:
        """Implement `TransactionCalls.send_offsets_to_transaction`."""
        name = "send_offsets_to_transaction()"
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline_s = self._network.now_s() + limit_s
        try:
            while (call := self._call) is not None and call.name == name:
                # Wait for another call that is adding offsets.
                if not await call.ended(max(0.0, deadline_s - self._network.now_s())):
                    raise self._timed_out(name, limit_s)
                self._forget(call)
            if self._call is None:
                self.state.check_may_add_offsets()
                # As in Kafka's producer, a call with an empty mapping does not add the group.
                if not offsets:
                    return
            await self._run_call(
                name,
                self.state.check_may_add_offsets,
                lambda: self._add_offsets(offsets, group),
                max(0.0, deadline_s - self._network.now_s()),
            )
        except (RequestTimedOut, Cancelled) as error:
            # It is unknown whether the offsets were added. A commit could lose them, or include
            # them unexpectedly.
            self._fail_transaction(error)
            call = self._call
            if call is not None and call.name == name:
                # The call's request may be in flight. An abort must wait for it, so that it does
                # not affect the next transaction.
                self._call = None
                self._late.append(call)
            if not isinstance(error, Cancelled):
                self.state.raise_error()
            raise

    async def commit(self, timeout_s: float | None = None) -> None:
        """Implement `TransactionCalls.commit_transaction`."""
        await self._run_call("commit_transaction()", self._check_commit, self._commit, timeout_s)

    async def abort(self, timeout_s: float | None = None) -> None:
        """Implement `TransactionCalls.abort_transaction`."""
        await self._run_call(_ABORT, self._begin_abort, self._abort, timeout_s)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open and no call is ending it."""
        return self._call is None and self.state.phase in (
            Phase.IN_TRANSACTION,
            Phase.ABORTABLE_ERROR,
        )

    async def settled(self, timeout_s: float | None) -> None:
        """Wait for the call in progress; log its errors."""
        if self._call is not None:
            call = self._call
            try:
                has_ended = await call.wait(timeout_s)
            except Cancelled:
                raise
            except Exception as error:
                log.warning("%s failed while the producer was closing: %s", call.name, error)
                has_ended = True
            if has_ended:
                self._forget(call)

    def stop(self) -> None:
        """Cancel all calls and requests."""
        for running in (self._call, self._adder, *self._late):
            if running is not None:
                running.cancel()

    async def _run_call(
        self,
        name: str,
        begin: Callable[[], None],
        work: Callable[[], Coroutine[Any, Any, None]],
        timeout_s: float | None,
    ) -> None:
        """Start the call `name`, or join it if it is in progress, and wait for its outcome."""
        call = self._call
        # `begin` checks the state first, so that a call that is not allowed does not change
        # anything.
        if call is None:
            begin()
            call = self._call = _Call(self._network, name, work())
        elif call.name != name:
            # The outcome of the other call decides which calls are allowed.
            raise IllegalState(
                f"cannot call {name} for transactional.id={self.state.transactional_id}: the"
                f" outcome of {call.name} is unknown; call {call.name} again first"
            )
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            in_time = await call.wait(limit_s)
        except Cancelled:
            raise  # Only this wait is cancelled; the call continues.
        except Exception:
            # The call has ended, so other calls are allowed again.
            self._forget(call)
            raise
        if not in_time:
            # Keep the call: its work continues, and a repeated call joins it.
            raise self._timed_out(name, limit_s)
        self._forget(call)

    def _timed_out(self, name: str, limit_s: float) -> RequestTimedOut:
        return RequestTimedOut(
            f"transactional.id={self.state.transactional_id}: {name} did not complete within"
            f" {limit_s:g} s; the operation continues: call {name} again to wait for its outcome"
        )

    def _forget(self, call: _Call) -> None:
        if self._call is call:
            self._call = None

    # -- the steps ------------------------------------------------------------------------------

    async def _init(self) -> None:
        try:
            identity = await self._coordinator.init()
        except (KafkaError, WireError) as error:
            self.state.init_failed()
            raise self._explained(error) from error
        self.state.initialized(identity)

    async def _begin(self) -> None:
        is_v2 = self._coordinator.is_v2
        if is_v2 and not self.state.is_v2 and self.state.number:
            # The cluster was upgraded to version 2. A new epoch fences late version 1 requests.
            await self._renew()
        self.state.begin(is_v2=is_v2)

    async def _add_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        try:
            self.state.begin_adding()
            if not self.state.is_v2:
                # In version 1, the producer adds the group at the transaction's coordinator. In
                # version 2, the group's coordinator does that (KIP-890).
                await self._coordinator.add_offsets(group.group_id)
                self.state.added()
                self.state.raise_error()
            await self._coordinator.commit_offsets(group, offsets)
            self.state.added()
        except (KafkaError, WireError) as error:
            # If the transaction is already ending, the late request needs to be fenced.
            if not self.state.may_retry:
                self.state.needs_new_epoch = True
                self.state.raise_error()
                raise
            self._fail(error)
            self.state.raise_error()

    def _check_commit(self) -> None:
        # No thread may be inside `send` during this check: each record must either be part of the
        # transaction or be rejected.
        self._outbox.close_gate(self.state.check_may_commit)

    async def _commit(self) -> None:
        # A commit includes all sends that started before it, even sends that wait for their topic.
        await self._outbox.wait_for_blocked()
        self._outbox.close_gate(self.state.begin_commit)
        await self._outbox.finish()
        # If a record has failed in the meantime, the transaction can only be aborted.
        self.state.raise_error()
        await self._end(committed=True)

    def _begin_abort(self) -> None:
        self._outbox.close_gate(self.state.begin_abort)

    async def _abort(self) -> None:
        # An AddPartitionsToTxn request that arrives after EndTxn would begin another transaction.
        if self._adder is not None:
            self._adder.cancel()
            self._is_adding = False
        await self._outbox.discard(
            TransactionAborted(
                f"transactional.id={self.state.transactional_id}: the transaction was aborted"
                " before the record was sent"
            )
        )
        # A request that reaches the coordinator after EndTxn would affect the next transaction, so
        # wait for all requests in flight.
        while self._late:
            await self._late[0].ended()
            del self._late[0]
        await self._end(committed=False)

    async def _end(self, *, committed: bool) -> None:
        state = self.state
        assert state.identity is not None
        identity = state.identity
        # If nothing was added to the transaction, the coordinator does not know it, and EndTxn
        # would fail.
        if state.begun and not state.is_forgotten:
            try:
                identity = await self._coordinator.end(committed=committed)
            except (KafkaError, WireError) as error:
                if not committed and verdict_of(error) is Verdict.FORGOTTEN:
                    state.is_forgotten = True
                elif committed or not self._was_never_begun(error):
                    self._fail(self._explain_invalid_state(error) if committed else error)
                    state.raise_error()
        # In version 2, EndTxn has returned the next epoch (KIP-890).
        has_new_epoch = identity != state.identity
        # KIP-360: a new epoch restarts the sequence numbers and fences late requests.
        if state.is_forgotten or (state.needs_new_epoch and not has_new_epoch):
            await self._renew()
            assert state.identity is not None
            identity = state.identity
        state.ended(identity)

    def _was_never_begun(self, error: Exception) -> bool:
        """Return whether the coordinator has no transaction to abort because requests were lost."""
        # INVALID_TXN_STATE means that the coordinator has no transaction to end.
        is_unknown = isinstance(error, KafkaError) and error.code == ErrorCode.INVALID_TXN_STATE
        if is_unknown and self.state.is_v2:
            # The failed EndTxn has not returned the next epoch.
            self.state.needs_new_epoch = True
        return is_unknown and (self.state.is_v2 or self.state.begun is Begun.PERHAPS)

    def _explain_invalid_state(self, error: Exception) -> Exception:
        """Return the probable cause if `error` means that there is no transaction to commit."""
        if isinstance(error, KafkaError) and error.code == ErrorCode.INVALID_TXN_STATE:
            return TransactionAbortable(
                "the broker has aborted it because it was open for longer than"
                f" transaction.timeout.ms={self._transaction_timeout_ms}"
            )
        return error

    async def _renew(self) -> None:
        """Get the next epoch from the coordinator."""
        try:
            self.state.identity = await self._coordinator.init(self.state.identity)
        except (KafkaError, WireError) as error:
            # The producer cannot continue without a new epoch.
            self._fail_producer(error)
            self.state.raise_error()

    # -- partitions -----------------------------------------------------------------------------

    def _start_adder(self) -> None:
        if not self._is_adding:
            self._is_adding = True
            self._adder = self._network.spawn(self._add(), "adding partitions to a transaction")

    async def _add(self) -> None:
        # The sender's current check of the queues may find more new partitions. Wait for it, and
        # add all of them in one request.
        await self._network.sleep(0)
        try:
            while self.state.may_retry and (partitions := self.state.new_partitions):
                self.state.begin_adding()
                await self._coordinator.add_partitions(partitions)
                self.state.added(partitions)
                self._outbox.wake()
        except (KafkaError, WireError) as error:
            self._fail(error)
        finally:
            self._is_adding = False

    # -- errors ---------------------------------------------------------------------------------

    def batch_failed(self, error: Exception, *, had_numbers: bool) -> None:
        """Fail the transaction because records were not written, or may not have been."""
        state = self.state
        # If the batch had sequence numbers, they may now be missing from the log.
        state.needs_new_epoch |= had_numbers
        # An abort fails batches on purpose, so these failures are not errors.
        if state.phase is Phase.ABORTING or not state.may_retry:
            return
        verdict = verdict_of_batch(error)
        state.is_forgotten |= verdict is Verdict.FORGOTTEN
        if verdict is Verdict.FATAL:
            self._fail_producer(error)
        else:
            self._fail_transaction(error)

    def _fail(self, error: Exception) -> None:
        """Handle a permanent error from a coordinator."""
        verdict = verdict_of(error)
        self.state.is_forgotten |= verdict is Verdict.FORGOTTEN
        # The coordinator may still process the request later; a new epoch fences it.
        self.state.needs_new_epoch = True
        # If even an abort fails, only a new producer can continue.
        if verdict is Verdict.FATAL or self.state.phase is Phase.ABORTING:
            self._fail_producer(error)
        else:
            self._fail_transaction(error)

    def _fail_transaction(self, error: Exception) -> None:
        self.state.fail_transaction(error)
        self._drop("its transaction has failed", error)

    def _fail_producer(self, error: Exception) -> None:
        explained = self._explained(error)
        self.state.fail_producer(explained)
        self._drop("the producer has failed", explained)

    def _explained(self, error: Exception) -> Exception:
        return explained(error, self.state.transactional_id, self._transaction_timeout_ms)

    def _drop(self, why: str, cause: Exception) -> None:
        """Schedule the failure of all records that are not in flight."""
        error = TransactionAborted(
            f"transactional.id={self.state.transactional_id}: the record was not sent: {why}:"
            f" {cause}"
        )
        error.__cause__ = cause
        # Do not fail the records now: the caller may be iterating over the batches.
        dropping = self._drop_soon(error, self.state.number)
        self._network.spawn(dropping, "dropping the records of a transaction")

    async def _drop_soon(self, error: Exception, number: int) -> None:
        await self._network.sleep(0)
        # The transaction may have ended in the meantime. Keep the records of the next transaction.
        if self.state.number == number and not self.state.may_retry:
            self._outbox.drop(error)
