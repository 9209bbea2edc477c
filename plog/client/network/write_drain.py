"""When what was written to a connection has left this process.

Twisted asks a pull producer for more whenever the system has taken all it had: that is the moment.
Until then the bytes wait in memory, as many as somebody writes; so who sends what is not answered
(acks=0) waits for their departure. Kafka's own producer does the same.

Reactor thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPullProducer
from twisted.python.failure import Failure
from zope.interface import implementer

from plog.client.network.ports import Cancelled


def _cancel(gone: Deferred[None]) -> None:
    gone.errback(Failure(Cancelled()))


@implementer(IPullProducer)
class WriteDrain:
    """Those of one connection; `tcp` is its transport, the one below TLS if there is TLS."""

    def __init__(self, tcp: Any) -> None:
        self._tcp = tcp
        self._waiting: list[tuple[float, Deferred[None]]] = []
        tcp.registerProducer(self, False)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def deadlines_s(self) -> list[float]:
        """When those that wait are overdue."""
        return [deadline_s for deadline_s, _ in self._waiting]

    def of_all_written(self, deadline_s: float) -> Deferred[None]:
        """Fires when all that was written before this call has left."""
        gone: Deferred[None] = Deferred(_cancel)
        self._waiting.append((deadline_s, gone))
        return gone

    def stop(self, error_at: Callable[[float], Exception]) -> None:
        """Wait for nothing more: what waits fails with the error for its deadline."""
        self._tcp.unregisterProducer()
        waiting, self._waiting = self._waiting, []
        for deadline_s, gone in waiting:
            if not gone.called:
                gone.errback(Failure(error_at(deadline_s)))

    # -- what the transport calls -------------------------------------------------------------

    def resumeProducing(self) -> None:
        """It has nothing left to write."""
        waiting, self._waiting = self._waiting, []
        for _, gone in waiting:
            if not gone.called:  # Nobody waits any more.
                gone.callback(None)

    def stopProducing(self) -> None:
        """The connection is lost, which the channel is told as well."""
