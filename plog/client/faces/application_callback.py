"""A call that the engine makes to an application's function in the application's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from plog.client.network.ports import Cancelled


class ApplicationCallback:
    """A pending call to an application's function, and the Deferred that receives its outcome."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.outcome: Deferred[Any] = Deferred(lambda d: d.errback(Failure(Cancelled())))

    def run(self, soon: Callable[..., None]) -> None:
        """Call the function in this thread; `soon` passes the outcome to the engine's thread."""
        try:
            result = self.function(*self.arguments)
        except Exception:
            # Deferreds are not thread-safe: this one must fire in the engine's thread.
            soon(self._complete, self.outcome.errback, Failure())
        else:
            soon(self._complete, self.outcome.callback, result)

    def _complete(self, fire: Callable[[Any], None], outcome: Any) -> None:
        # The engine may have cancelled the call in the meantime, which has fired the Deferred.
        if not self.outcome.called:
            fire(outcome)
