"""A transaction as a ``with`` block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from plog.client.transactions.context_manager import AsyncTransaction, Transaction
from plog.errors import ProducerFenced, TransactionAbortable


class Producer:
    """A producer that records its calls; `commit` and `abort` are raised by the two calls."""

    def __init__(self, commit: Exception | None = None, abort: Exception | None = None) -> None:
        self.called: list[str] = []
        self._errors = {"commit": commit, "abort": abort}

    def _call(self, name: str) -> None:
        self.called.append(name)
        error = self._errors.get(name)
        if error is not None:
            raise error

    def begin_transaction(self) -> None:
        self._call("begin")

    def commit_transaction(self) -> None:
        self._call("commit")

    def abort_transaction(self, timeout_s: float | None = None) -> None:
        self._call("abort")


class AsyncProducer:
    """The same producer, with coroutines."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def begin_transaction(self) -> None:
        self._producer.begin_transaction()

    async def commit_transaction(self) -> None:
        self._producer.commit_transaction()

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        self._producer.abort_transaction()


def run_blocking(producer: Producer, error: Exception | None) -> None:
    with Transaction(producer) as same:
        assert same is producer
        if error is not None:
            raise error


def run_async(producer: Producer, error: Exception | None) -> None:
    async def work() -> None:
        async with AsyncTransaction(AsyncProducer(producer)):
            if error is not None:
                raise error

    asyncio.run(work())


Run = Callable[[Producer, Exception | None], None]

BOTH = pytest.mark.parametrize("run", [run_blocking, run_async])


@BOTH
def test_block_commits_at_its_end(run: Run) -> None:
    producer = Producer()
    run(producer, None)
    assert producer.called == ["begin", "commit"]


@BOTH
def test_failing_block_is_aborted_and_its_error_propagates(run: Run) -> None:
    for abort in (None, ProducerFenced("no more")):
        producer = Producer(abort=abort)
        with pytest.raises(KeyError):
            run(producer, KeyError())
        assert producer.called == ["begin", "abort"]


@BOTH
def test_abortable_commit_is_aborted(run: Run) -> None:
    producer = Producer(commit=TransactionAbortable("a record is missing"))
    with pytest.raises(TransactionAbortable):
        run(producer, None)
    assert producer.called == ["begin", "commit", "abort"]


@BOTH
def test_fenced_producer_is_not_aborted(run: Run) -> None:
    producer = Producer(commit=ProducerFenced("by another"))
    with pytest.raises(ProducerFenced):
        run(producer, None)
    assert producer.called == ["begin", "commit"]
