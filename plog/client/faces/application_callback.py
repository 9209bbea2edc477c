"""A call that the engine wants made in the application's own thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from plog.client.network.ports import Cancelled


class ApplicationCallback:
    """A function of the application that the engine wants called, and what becomes of it."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.outcome: Deferred[Any] = Deferred(lambda d: d.errback(Failure(Cancelled())))

    def make(self, soon: Callable[..., None]) -> None:
        """Call it here; `soon` brings the outcome to the engine's thread."""
        try:
            result = self.function(*self.arguments)
        except Exception:
            soon(self._end, self.outcome.errback, Failure())
        else:
            soon(self._end, self.outcome.callback, result)

    def _end(self, finish: Callable[[Any], None], outcome: Any) -> None:
        if not self.outcome.called:  # Else nobody waits any more.
            finish(outcome)
