"""Context managers for transactions: commit at the end of the block, abort if it raises.

An exception in the block or the commit propagates. After TransactionAbortable, the application can
retry the block, because the transaction was aborted. An exception leaves the block within seconds,
even if no broker can be reached: the abort continues in the background, and the next transaction
waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from plog.errors import PlogError, TransactionAbortable

EXIT_TIMEOUT_S = 2.0
"""The time in seconds for which a block that raises an exception waits for the abort."""

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
    """A transaction of a blocking producer, for ``with producer.transaction():``."""

    def __init__(self, producer: P) -> None:
        self._producer = producer

    def __enter__(self) -> P:
        self._producer.begin_transaction()
        return self._producer

    def __exit__(
        self, kind: Any, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            # Wait only briefly: even if no broker can be reached, an exception such as Ctrl-C must
            # leave the block promptly.
            self._abort(EXIT_TIMEOUT_S)
            return
        try:
            self._producer.commit_transaction()
        except TransactionAbortable:
            # Only this error requires an abort; after any other error, the outcome is unknown or
            # final.
            self._abort()
            raise

    def _abort(self, timeout_s: float | None = None) -> None:
        try:
            self._producer.abort_transaction(timeout_s)
        except PlogError as error:
            # Log this error: raising it would hide the exception that ended the block.
            log.warning("cannot abort a transaction: %s", error)


# The same rules as in `Transaction`, for awaitables.
class AsyncTransaction(Generic[W]):
    """A transaction of an asyncio or Twisted producer: ``async with producer.transaction():``."""

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
        except PlogError as error:
            # Log this error: raising it would hide the exception that ended the block.
            log.warning("cannot abort a transaction: %s", error)
