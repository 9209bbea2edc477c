"""Who comes to the HTTP port and does not speak HTTP, told by the first byte, with one line.

HTTP itself would only wait for a line that never ends, and the client for its answer. The opposite,
HTTP on a Kafka port, is net/wrong_protocol.py's business. Made by site.py; reactor thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IProtocol, IProtocolFactory
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory

from plogd.logging import RateLimit

log = Logger()

_PEER_LOG_INTERVAL_S = 60.0
# The first byte of a Kafka request, and of a TLS handshake; never one of HTTP.
_MISTAKES = {
    b"\0": "a Kafka request: Kafka clients use an address of advertised.listeners or listeners",
    b"\x16": "a TLS handshake: there is no https here",
}


class GreetedProtocol(ProtocolWrapper):
    """Looks at the first byte and passes on everything."""

    _is_greeted = False

    def __init__(self, factory: GreetingFactory, wrapped: IProtocol) -> None:
        super().__init__(factory, wrapped)  # type: ignore[arg-type]  # Generic only of late.
        self._report = factory.report

    def dataReceived(self, data: bytes) -> None:
        """Bytes as they came from the socket."""
        mistake = None if self._is_greeted else _MISTAKES.get(data[:1])
        self._is_greeted = True
        if mistake is None:
            super().dataReceived(data)  # type: ignore[no-untyped-call]
        else:
            transport: Any = self.transport
            self._report(transport.getPeer().host, mistake)
            transport.loseConnection()


class GreetingFactory(WrappingFactory):
    """`factory`, usually a Site, for those who speak HTTP."""

    protocol = GreetedProtocol
    noisy = False

    def __init__(self, factory: IProtocolFactory, seconds: Callable[[], float]) -> None:
        super().__init__(factory)  # type: ignore[no-untyped-call]
        self._seconds = seconds
        self._peer_log = RateLimit(_PEER_LOG_INTERVAL_S)

    def report(self, host: str, mistake: str) -> None:
        """One line, but not one each time a client does it."""
        if self._peer_log.admit((host, mistake), self._seconds()) is not None:
            log.warn(
                "{host}: closed a connection to plog.http.port that sent {mistake}",
                host=host,
                mistake=mistake,
            )
