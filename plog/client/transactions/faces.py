"""Transactions as the producers of the three faces have them."""

from __future__ import annotations

from typing import Self

from plog.client.faces.method_adapters import awaitable, blocking, deferred
from plog.client.transactions.calls import TransactionCalls
from plog.client.transactions.context_manager import AsyncTransaction, Transaction


class BlockingTransactions:
    """For a producer that blocks."""

    init_transactions = blocking(TransactionCalls.init_transactions)
    begin_transaction = blocking(TransactionCalls.begin_transaction)
    send_offsets_to_transaction = blocking(TransactionCalls.send_offsets_to_transaction)
    commit_transaction = blocking(TransactionCalls.commit_transaction)
    abort_transaction = blocking(TransactionCalls.abort_transaction)

    def transaction(self) -> Transaction[Self]:
        """``with`` it: a transaction, committed at the end of the block, or aborted."""
        return Transaction(self)


class AsyncioTransactions:
    """For one on an asyncio loop."""

    init_transactions = awaitable(TransactionCalls.init_transactions)
    begin_transaction = awaitable(TransactionCalls.begin_transaction)
    send_offsets_to_transaction = awaitable(TransactionCalls.send_offsets_to_transaction)
    commit_transaction = awaitable(TransactionCalls.commit_transaction)
    abort_transaction = awaitable(TransactionCalls.abort_transaction)

    def transaction(self) -> AsyncTransaction[Self]:
        """``async with`` it: a transaction, committed at the end of the block, or aborted."""
        return AsyncTransaction(self)


class TwistedTransactions:
    """For one whose methods return Deferreds."""

    init_transactions = deferred(TransactionCalls.init_transactions)
    begin_transaction = deferred(TransactionCalls.begin_transaction)
    send_offsets_to_transaction = deferred(TransactionCalls.send_offsets_to_transaction)
    commit_transaction = deferred(TransactionCalls.commit_transaction)
    abort_transaction = deferred(TransactionCalls.abort_transaction)

    def transaction(self) -> AsyncTransaction[Self]:
        """``async with`` it: a transaction, committed at the end of the block, or aborted."""
        return AsyncTransaction(self)
