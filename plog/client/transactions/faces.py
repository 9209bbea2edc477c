"""The transaction methods of the blocking, asyncio and Twisted producers."""

from __future__ import annotations

from typing import Self

from plog.client.faces.method_adapters import awaitable, blocking, deferred
from plog.client.transactions.calls import TransactionCalls
from plog.client.transactions.context_manager import AsyncTransaction, Transaction


class BlockingTransactions:
    """The transaction methods of the blocking producer."""

    init_transactions = blocking(TransactionCalls.init_transactions)
    begin_transaction = blocking(TransactionCalls.begin_transaction)
    send_offsets_to_transaction = blocking(TransactionCalls.send_offsets_to_transaction)
    commit_transaction = blocking(TransactionCalls.commit_transaction)
    abort_transaction = blocking(TransactionCalls.abort_transaction)

    def transaction(self) -> Transaction[Self]:
        """Return a context manager for one transaction.

        It begins a transaction and commits it at the end of the block. If the block raises an
        exception, it aborts the transaction.
        """
        return Transaction(self)


class AsyncioTransactions:
    """The transaction methods of the asyncio producer."""

    init_transactions = awaitable(TransactionCalls.init_transactions)
    begin_transaction = awaitable(TransactionCalls.begin_transaction)
    send_offsets_to_transaction = awaitable(TransactionCalls.send_offsets_to_transaction)
    commit_transaction = awaitable(TransactionCalls.commit_transaction)
    abort_transaction = awaitable(TransactionCalls.abort_transaction)

    def transaction(self) -> AsyncTransaction[Self]:
        """Return an async context manager for one transaction.

        It begins a transaction and commits it at the end of the block. If the block raises an
        exception, it aborts the transaction.
        """
        return AsyncTransaction(self)


class TwistedTransactions:
    """The transaction methods of the Twisted producer."""

    init_transactions = deferred(TransactionCalls.init_transactions)
    begin_transaction = deferred(TransactionCalls.begin_transaction)
    send_offsets_to_transaction = deferred(TransactionCalls.send_offsets_to_transaction)
    commit_transaction = deferred(TransactionCalls.commit_transaction)
    abort_transaction = deferred(TransactionCalls.abort_transaction)

    def transaction(self) -> AsyncTransaction[Self]:
        """Return an async context manager for one transaction.

        It begins a transaction and commits it at the end of the block. If the block raises an
        exception, it aborts the transaction.
        """
        return AsyncTransaction(self)
