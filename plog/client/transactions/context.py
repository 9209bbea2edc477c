"""A transaction as a block: committed at its end, aborted if an exception comes out of it.

What comes out of the block goes on, and so does what comes of the commit. TransactionAbortable
means that the block may be tried again: the transaction was aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from plog.errors import PlogError, TransactionAbortable

log = logging.getLogger("plog.client")


class _Blocking(Protocol):
    def begin_transaction(self) -> None: ...
    def commit_transaction(self) -> None: ...
    def abort_transaction(self) -> None: ...


class _Waiting(Protocol):
    def begin_transaction(self) -> Awaitable[None]: ...
    def commit_transaction(self) -> Awaitable[None]: ...
    def abort_transaction(self) -> Awaitable[None]: ...


P = TypeVar("P", bound=_Blocking)
W = TypeVar("W", bound=_Waiting)


class Transaction(Generic[P]):
    """``with producer.transaction():`` for code that blocks."""

    def __init__(self, producer: P) -> None:
        self._producer = producer

    def __enter__(self) -> P:
        self._producer.begin_transaction()
        return self._producer

    def __exit__(
        self, kind: Any, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._abort()
            return
        try:
            self._producer.commit_transaction()
        except TransactionAbortable:
            self._abort()
            raise

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction()
        except PlogError as error:  # The first one says more.
            log.warning("a transaction was not aborted: %s", error)


class AsyncTransaction(Generic[W]):
    """``async with producer.transaction():`` for coroutines, of asyncio and of Twisted."""

    def __init__(self, producer: W) -> None:
        self._producer = producer

    async def __aenter__(self) -> W:
        await self._producer.begin_transaction()
        return self._producer

    async def __aexit__(
        self, kind: Any, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            await self._abort()
            return
        try:
            await self._producer.commit_transaction()
        except TransactionAbortable:
            await self._abort()
            raise

    async def _abort(self) -> None:
        try:
            await self._producer.abort_transaction()
        except PlogError as error:  # The first one says more.
            log.warning("a transaction was not aborted: %s", error)
