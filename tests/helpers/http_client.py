"""A client of the HTTP site over an in-memory transport."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.testing import StringTransport

from plogd.http.http_server import HttpFactory

PEER = IPv4Address("TCP", "192.0.2.7", 5000)


class HttpTransport(StringTransport):
    """Keeps written bytes until a test reads them."""

    aborted = half_closed = False

    def abortConnection(self) -> None:
        self.aborted = True

    def loseWriteConnection(self) -> None:
        self.half_closed = True


class HttpClient:
    """One connection to `site`."""

    def __init__(self, site: HttpFactory) -> None:
        self.protocol: Any = site.buildProtocol(PEER)
        self.transport = HttpTransport(peerAddress=PEER)
        self.protocol.makeConnection(self.transport)

    def send(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    def read_piece(self) -> None:
        """Read the written bytes, so that the site may write more."""
        producer = self.transport.producer
        if producer is not None:
            producer.resumeProducing()

    def read(self) -> bytes:
        """Read everything that the site writes."""
        while self.transport.producer is not None:
            self.read_piece()
        return self.transport.value()

    def response(self) -> tuple[int, dict[str, str], bytes]:
        """Return (status code, headers, body)."""
        head, _, body = self.read().partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in rest)}
        return int(first.split()[1]), headers, body
