"""The Twisted protocol of every client connection, and the path that copies.

On a plain port the transport moves its bytes itself (transport.py), and this protocol only brings
the two together. On any other transport, which is TLS, bytes arrive here as `dataReceived`, are
copied into the shared receive buffer and go the same way from there; answers leave by
copying_output.py. Which of the two it is, the transport says: it provides ISSLTransport, or not.

Made by listener_port.py; reactor thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from plogd.connection_context import ConnectionContext
from plogd.net.connection import Connection
from plogd.net.connections import Connections
from plogd.net.copying_output import CopyingOutput
from plogd.net.transport import ServerTransport, can_send_files


class ProtocolConnection(Protocol):
    """A client's connection as Twisted sees it.

    Args:
        context_of: makes the connection's context from its transport.

    Attributes:
        context: who is connected; there from `connectionMade` on.
    """

    context: ConnectionContext

    def __init__(self, shared: Connections, context_of: Callable[[Any], ConnectionContext]) -> None:
        self._shared = shared
        self._context_of = context_of
        self._connection: Connection | None = None
        self._wire: CopyingOutput | None = None
        self._unread = memoryview(b"")
        self._is_feeding = False
        self._has_ended = False

    def connectionMade(self) -> None:
        """Choose how bytes travel, and begin."""
        transport: Any = self.transport
        self.context = context = self._context_of(transport)
        if can_send_files(transport):
            assert isinstance(transport, ServerTransport)
            transport.serve(self._shared, context)
            return
        self._wire = CopyingOutput(transport, self._shared, self._feed)
        self._connection = self._wire.connection = Connection(self._shared, context, self._wire)

    def dataReceived(self, data: bytes) -> None:
        """Bytes came, maybe more than may be read now: the rest is kept here."""
        if not self._has_ended:
            self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
            self._feed()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection is gone. As on a plain port, requests that came before may still start."""
        self._has_ended = True
        if self._connection is not None and self._wire is not None:
            self._wire.lost()
            if self._connection.is_closing:
                self._connection.lost()
            else:
                self._feed()

    def _feed(self) -> None:
        """Pass on what may be read; called again by each permission to read more."""
        connection = self._connection
        if self._is_feeding or connection is None:
            return
        self._is_feeding = True
        try:
            while self._unread and len(target := connection.target()):
                nbytes = min(len(target), len(self._unread))
                target[:nbytes] = self._unread[:nbytes]
                self._unread = self._unread[nbytes:]
                connection.received(nbytes)
        finally:
            self._is_feeding = False
        if self._has_ended and (not self._unread or connection.is_parked):
            connection.end_of_stream()
