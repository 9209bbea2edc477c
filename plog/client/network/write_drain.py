"""Detect when the bytes written to a connection have left this process.

Twisted keeps written bytes in memory, without a limit, until the kernel accepts them; then it
resumes a pull producer. A sender of requests without a response (acks=0) therefore waits until the
bytes are written, as Kafka's own producer does. Use only in the reactor's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPullProducer
from twisted.python.failure import Failure
from zope.interface import implementer

from plog.client.network.ports import Cancelled


def _cancel(written: Deferred[None]) -> None:
    written.errback(Failure(Cancelled()))


@implementer(IPullProducer)
class WriteDrain:
    """One connection's pending writes.

    `tcp` is the connection's transport or, with TLS, the TCP transport below TLS.
    """

    def __init__(self, tcp: Any) -> None:
        self._tcp = tcp
        self._waiting: list[tuple[float, Deferred[None]]] = []
        # False registers a pull producer, which Twisted resumes once whenever the buffer is empty.
        tcp.registerProducer(self, False)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def deadlines_s(self) -> list[float]:
        """The deadlines of the pending writes."""
        return [deadline_s for deadline_s, _ in self._waiting]

    def of_all_written(self, deadline_s: float) -> Deferred[None]:
        """Return a Deferred that fires when all bytes written before this call have left."""
        written: Deferred[None] = Deferred(_cancel)
        self._waiting.append((deadline_s, written))
        return written

    def stop(self, error_at: Callable[[float], Exception]) -> None:
        """Fail each pending write with the error that `error_at` returns for its deadline."""
        self._tcp.unregisterProducer()
        waiting, self._waiting = self._waiting, []
        for deadline_s, written in waiting:
            if not written.called:
                written.errback(Failure(error_at(deadline_s)))

    # -- called by the transport --------------------------------------------------------------

    def resumeProducing(self) -> None:
        """Complete the pending writes: the transport's buffer is empty."""
        # Replace the list first: a waiter may send again immediately.
        waiting, self._waiting = self._waiting, []
        for _, written in waiting:
            if not written.called:  # The caller may have cancelled the wait.
                written.callback(None)

    def stopProducing(self) -> None:
        """Do nothing: the channel calls `stop` when the connection is lost."""
