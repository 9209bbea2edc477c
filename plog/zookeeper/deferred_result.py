"""A `Deferred` as the result of a request of `KazooZooKeeper`, for the engine of the client."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from plog.client.network.ports import Cancelled


class DeferredResult(Deferred[Any]):
    """A result that a coroutine of the engine can await, and that may be cancelled."""

    def __init__(self) -> None:
        super().__init__(lambda deferred: deferred.errback(Failure(Cancelled())))

    def succeed(self, value: Any) -> None:
        """Set the value, unless the result was cancelled."""
        if not self.called:
            self.callback(value)

    def fail(self, error: Exception) -> None:
        """Set the error, unless the result was cancelled."""
        if not self.called:
            self.errback(Failure(error))
