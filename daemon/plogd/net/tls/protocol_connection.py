"""The Twisted protocol for every client connection, and the copying path for TLS.

On a plain port, the transport moves the bytes itself (transport.py), and this protocol only
connects it with the shared state. With TLS, `dataReceived` copies the bytes into the shared receive
buffer, and copying_output.py sends the responses.

Created by listener_port.py; reactor thread only.
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
    """The Twisted protocol for one client connection.

    Args:
        context_of: creates the connection's context from its transport.

    Attributes:
        context: the connection's context, set by `connectionMade`.
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
        """Choose between direct and copying I/O, and start."""
        transport: Any = self.transport
        self.context = context = self._context_of(transport)
        if can_send_files(transport):
            assert isinstance(transport, ServerTransport)
            transport.serve(self._shared, context)
            return
        self._wire = CopyingOutput(transport, self._shared, self._feed)
        self._connection = self._wire.connection = Connection(self._shared, context, self._wire)

    def dataReceived(self, data: bytes) -> None:
        """Handle received bytes; keep the bytes that may not be read yet."""
        if not self._has_ended:
            self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
            self._feed()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Handle the end of the connection.

        As on a plain port, requests received earlier may still start.
        """
        self._has_ended = True
        if self._connection is not None and self._wire is not None:
            # Unsent responses are discarded first, because they could prevent the remaining
            # requests from starting.
            self._wire.lost()
            if self._connection.is_closing:
                self._connection.lost()
            else:
                self._feed()

    def _feed(self) -> None:
        """Pass on the bytes that may be read; called again whenever more bytes may be read."""
        connection = self._connection
        # `received` can lead back to this method, through `set_reading`.
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
        # Parked requests are dropped with the connection, so the remaining bytes are not needed.
        if self._has_ended and (not self._unread or connection.is_parked):
            connection.end_of_stream()
