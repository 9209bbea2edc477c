"""A transaction as a block: committed at its end, aborted if the block raises an exception.

The exception of the block is raised again, and so is one of the commit. After TransactionAbortable
the block may be tried again: the transaction was aborted. An exception leaves the block within
moments even if no broker can be reached: the abort goes on in the background, and the next
transaction waits for it before it begins.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from plog.errors import PlogError, TransactionAbortable

EXIT_TIMEOUT_S = 2.0
"""How long leaving the block by an exception waits for the abort."""

log = logging.getLogger("plog.client")


class _Blocking(Protocol):
    def begin_transaction(self) -> None: ...
    def commit_transaction(self) -> None: ...
    def abort_transaction(self, timeout_s: float | None = None) -> None: ...


class _Waiting(Protocol):
    def begin_transaction(self) -> Awaitable[None]: ...
    def commit_transaction(self) -> Awaitable[None]: ...
    def abort_transaction(self, timeout_s: float | None = None) -> Awaitable[None]: ...


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
            self._abort(EXIT_TIMEOUT_S)
            return
        try:
            self._producer.commit_transaction()
        except TransactionAbortable:
            self._abort()
            raise

    def _abort(self, timeout_s: float | None = None) -> None:
        try:
            self._producer.abort_transaction(timeout_s)
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
            await self._abort(EXIT_TIMEOUT_S)
            return
        try:
            await self._producer.commit_transaction()
        except TransactionAbortable:
            await self._abort()
            raise

    async def _abort(self, timeout_s: float | None = None) -> None:
        try:
            await self._producer.abort_transaction(timeout_s)
        except PlogError as error:  # The first one says more.
            log.warning("a transaction was not aborted: %s", error)
