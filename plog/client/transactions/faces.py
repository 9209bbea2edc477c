"""The transaction methods of the blocking, asyncio and Twisted producers."""

from __future__ import annotations

from typing import Self

from plog.client.faces.method_adapters import awaitable, blocking, deferred
from plog.client.transactions.calls import TransactionCalls
from plog.client.transactions.context_manager import AsyncTransaction, Transaction


class BlockingTransactions:
    """Transaction methods that block."""

    init_transactions = blocking(TransactionCalls.init_transactions)
    begin_transaction = blocking(TransactionCalls.begin_transaction)
    send_offsets_to_transaction = blocking(TransactionCalls.send_offsets_to_transaction)
    commit_transaction = blocking(TransactionCalls.commit_transaction)
    abort_transaction = blocking(TransactionCalls.abort_transaction)

    def transaction(self) -> Transaction[Self]:
        """Return a context manager that commits a transaction, or aborts it if the block raises."""
        return Transaction(self)


class AsyncioTransactions:
    """Transaction methods for an asyncio event loop."""

    init_transactions = awaitable(TransactionCalls.init_transactions)
    begin_transaction = awaitable(TransactionCalls.begin_transaction)
    send_offsets_to_transaction = awaitable(TransactionCalls.send_offsets_to_transaction)
    commit_transaction = awaitable(TransactionCalls.commit_transaction)
    abort_transaction = awaitable(TransactionCalls.abort_transaction)

    def transaction(self) -> AsyncTransaction[Self]:
        """Return an async context manager that commits, or aborts if the block raises."""
        return AsyncTransaction(self)


class TwistedTransactions:
    """Transaction methods that return Deferreds."""

    init_transactions = deferred(TransactionCalls.init_transactions)
    begin_transaction = deferred(TransactionCalls.begin_transaction)
    send_offsets_to_transaction = deferred(TransactionCalls.send_offsets_to_transaction)
    commit_transaction = deferred(TransactionCalls.commit_transaction)
    abort_transaction = deferred(TransactionCalls.abort_transaction)

    def transaction(self) -> AsyncTransaction[Self]:
        """Return an async context manager that commits, or aborts if the block raises."""
        return AsyncTransaction(self)
