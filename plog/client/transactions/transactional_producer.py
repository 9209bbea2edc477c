"""The producer with a ``transactional.id``: it sends records only within transactions.

calls.py contains the calls that begin, commit and abort a transaction; transaction_manager.py
implements them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import RLock
from typing import Any, TypeVar

from plog.client.errors import ClosedError, IllegalState, TransactionAborted
from plog.client.network.cluster import Cluster
from plog.client.network.ports import Cancelled, Network
from plog.client.producer.core import ProducerCore
from plog.client.producer.memory_claim import Claim
from plog.client.producer.producer_batch import OnDelivery, ProducerBatch, RecordHandle
from plog.client.producer.record_checks import Headers
from plog.client.producer.sequence_numbers import NO_SEQUENCE
from plog.client.settings import ProducerSettings
from plog.client.transactions.coordinator import TransactionCoordinator
from plog.client.transactions.transaction_manager import TransactionManager
from plog.client.transactions.transaction_state import TransactionState
from plog.errors import PlogError

log = logging.getLogger("plog.client")

H = TypeVar("H", bound=RecordHandle)

_POLL_S = 0.005
"""The interval between checks for requests in flight, when all records have an outcome."""


class TransactionalCore(ProducerCore[H]):
    """A ProducerCore whose records belong to transactions."""

    def __init__(
        self, cluster: Cluster, network: Network, settings: ProducerSettings, **options: Any
    ) -> None:
        assert settings.transactional_id is not None
        self._state = TransactionState(settings.transactional_id)
        # The lock is reentrant: `append` may run the engine in this thread, and a callback may
        # commit.
        self._gate = RLock()
        super().__init__(cluster, network, settings, transaction=self._state, **options)
        self._append = self._append_in_transaction
        self._deliveries.on_failure = self._on_failure
        self._deliveries.may_retry = lambda: self._state.may_retry
        if self._audit is not None:
            self._state.on_end = self._audit.transaction_ended
        self.transactions = TransactionManager(
            network,
            self._state,
            TransactionCoordinator(cluster, network, settings, self._state),
            _Outbox(self),
            timeout_s=settings.max_block_ms / 1000,
            transaction_timeout_ms=settings.transaction_timeout_ms,
        )

    # -- any thread -----------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
        claim: Claim = Claim.NEW,
    ) -> H | None:
        """Accept a record as `ProducerCore.send` does, within a transaction.

        In addition, raises IllegalState outside a transaction, TransactionAbortable in a failed
        transaction, and the producer's error if the producer has failed. A rejected record makes
        the transaction fail.
        """
        # Check the state before doing work for the record; `_append_in_transaction` checks again.
        self._state.check_may_send()
        try:
            return super().send(
                topic, value, key, partition, timestamp, headers, on_delivery, claim
            )
        except (IllegalState, ClosedError):
            # The state does not allow the call at all, so no record is missing.
            raise
        except Exception as error:
            # Even if the application ignores the exception, the transaction must not be committed
            # without this record.
            self._state.send_failed(error)
            raise

    def _append_in_transaction(self, *record: Any) -> H | None:
        # The lock ensures that the transaction does not end between the check and the append.
        with self._gate:
            self._state.check_may_send()
            return self._accumulator.append(*record)

    # -- the engine's thread --------------------------------------------------------------------

    async def send_soon(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
    ) -> H:
        """Accept a record as `ProducerCore.send_soon` does.

        A commit waits for the record; an abort does not.
        """
        # If the transaction ends during the wait, the record must not become part of the next one.
        number = self._state.number
        deadline_s = self._network.now_s() + self._settings.max_block_ms / 1000
        record = (topic, value, key, partition, timestamp, headers, on_delivery)

        def attempt() -> H | None:
            if self._state.number != number:
                raise TransactionAborted(
                    f"a record for topic {topic} was not sent before its transaction ended"
                )
            return self.send(*record, Claim.FIRST)

        try:
            return await self._until_accepted(attempt, topic, partition, deadline_s)
        except Cancelled:
            raise
        except PlogError as error:
            if self._state.number == number:
                self._state.send_failed(error)
            raise

    def _on_failure(self, batch: ProducerBatch, error: Exception) -> None:
        assert self.transactions is not None
        had_numbers = batch.base_sequence != NO_SEQUENCE
        self.transactions.batch_failed(error, had_numbers=had_numbers)

    async def close(self, timeout_s: float | None = None) -> None:
        """Close as `ProducerCore.close` does, after aborting an open transaction."""
        if self._is_closed:
            return
        # Without a timeout from the application, max.block.ms limits the abort, as it limits other
        # transaction calls.
        limit_s = self._settings.max_block_ms / 1000 if timeout_s is None else timeout_s
        deadline_s = self._network.now_s() + limit_s
        try:
            await self._end_transaction(deadline_s)
        except Cancelled:
            # Even if the close is cancelled, every record needs an outcome.
            self._stop_transactions()
            self._refuse_records()
            self._close_rest()
            self._stop_audit()
            raise
        self._stop_transactions()
        left_s = None if timeout_s is None else max(0.0, deadline_s - self._network.now_s())
        await super().close(left_s)

    async def _end_transaction(self, deadline_s: float) -> None:
        assert self.transactions is not None
        # A commit in progress decides the outcome, so wait for it before sending an abort.
        await self.transactions.settled(max(0.0, deadline_s - self._network.now_s()))
        if self.transactions.is_open:
            try:
                await self.transactions.abort(max(0.0, deadline_s - self._network.now_s()))
            except Cancelled:
                raise
            except PlogError as error:
                # If this abort fails, the coordinator aborts the transaction after
                # transaction.timeout.ms.
                log.warning("cannot abort a transaction while closing the producer: %s", error)

    def _stop_transactions(self) -> None:
        assert self.transactions is not None
        self.transactions.stop()
        self._drop(ClosedError("the producer was closed before its transaction was committed"))

    # -- for the transaction manager ------------------------------------------------------------

    async def _wait_for_blocked(self) -> None:
        while self._blocked:
            self._progress.clear()
            await self._progress.wait()

    async def _discard(self, error: Exception) -> None:
        self._drop(error)
        await self._until_finished(list(self._accumulator.incomplete))
        # An expired batch has its outcome, but its request may still be in flight. It must not
        # write records after EndTxn.
        while self._metrics.requests_in_flight:
            await self._network.sleep(_POLL_S)

    def _drop(self, error: Exception) -> None:
        for batch in list(self._accumulator.incomplete):
            # A batch in flight may be written, so its response must decide the outcome. Failing one
            # batch may complete others.
            if not batch.on_wire and not batch.is_done:
                self._accumulator.remove(batch)
                self._deliveries.fail(batch, error)

    def _close_gate(self, change: Callable[[], None]) -> None:
        with self._gate:
            change()


class _Outbox:
    """The `Outbox` of a transactional producer."""

    def __init__(self, core: TransactionalCore[Any]) -> None:
        self.wait_for_blocked = core._wait_for_blocked
        self.finish = core.flush
        self.drop = core._drop
        self.discard = core._discard
        self.wake = core.woken
        self.close_gate = core._close_gate


def producer_core(
    cluster: Cluster, network: Network, settings: ProducerSettings, **options: Any
) -> ProducerCore[Any]:
    """Return a transactional producer if transactional.id is set, otherwise a plain producer."""
    kind = ProducerCore[Any] if settings.transactional_id is None else TransactionalCore[Any]
    return kind(cluster, network, settings, **options)
