"""The ports of TLS listeners: stock Twisted does TLS, and the path that copies does the rest.

Below a client's `TlsConnection` lie Twisted's TLS over memory and its own TCP transport, never a
`ServerTransport`: no byte may leave that OpenSSL has not seen. What is added here is judgement: who
does not speak TLS at all, handshakes that never end, why one failed, and whose certificate it was.

Imported only where a listener asks for TLS; reactor thread only. Invariants: a connection is
counted from its first packet on, handshake or not; a request sees the principal of its connection.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from OpenSSL import SSL
from twisted.internet import tcp
from twisted.internet.interfaces import IAddress, IHandshakeListener, IProtocol
from twisted.internet.protocol import connectionDone
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from plog.openssl import reason_of
from plogd.connection_context import ConnectionContext
from plogd.net.connections import Connections
from plogd.net.listener_port import ListenerFactory, PlainPort
from plogd.net.protocol_connection import ProtocolConnection
from plogd.net.tls_context import TlsServer, VerifyFailure, owner_of
from plogd.net.tls_failures import explain_handshake_failure
from plogd.net.wrong_protocol import explain_not_tls
from plogd.ports import Timer


class TlsTransport(tcp.Server):
    """Twisted's own transport, below TLS, which leaves handshakes to a later pass of the reactor.

    A handshake takes a millisecond or more, so those of hundreds of new clients would keep the
    others waiting; the bytes stay in the socket, and epoll reports them again.
    """

    def doRead(self) -> Any:
        """The socket is readable."""
        tls = self.protocol
        assert isinstance(tls, _TlsProtocol), "TlsFactory makes the protocols of a TlsPort"
        connection = tls.wrappedProtocol
        assert isinstance(connection, TlsConnection), "TlsListenerFactory makes what is above TLS"
        if not connection.is_handshaking:
            return super().doRead()
        shared = connection.shared
        if shared.run_queue.is_behind:
            return None
        started_ms = shared.clock.monotonic_ms()
        outcome = super().doRead()
        shared.run_queue.spent(shared.clock.monotonic_ms() - started_ms)
        return outcome


class TlsPort(PlainPort):
    """A listening socket as for plain connections, but with transports for TLS."""

    transport = TlsTransport  # type: ignore[assignment]


@implementer(IHandshakeListener)
class TlsConnection(ProtocolConnection):
    """A client's connection above TLS."""

    def __init__(
        self,
        shared: Connections,
        context_of: Callable[[Any], ConnectionContext],
        listener_name: str,
    ) -> None:
        super().__init__(shared, context_of)
        self.shared = shared
        self._listener_name = listener_name
        self._deadline: Timer | None = None

    def connectionMade(self) -> None:
        """TCP is there; the handshake begins, and has to end."""
        super().connectionMade()
        # The bound on a request that comes in bit by bit is one on this, too.
        limit_ms = self._shared.settings.plog_partial_request_timeout_ms
        self._deadline = self._shared.timers.call_later(limit_ms, self._handshake_is_overdue)

    @property
    def is_handshaking(self) -> bool:
        """Whether the handshake has begun and not ended."""
        return self._deadline is not None

    def handshakeCompleted(self) -> None:
        """The client is who it says, if it says so."""
        self._cancel_deadline()
        transport: Any = self.transport
        certificate = transport.getPeerCertificate()
        if certificate is None:
            return
        try:
            self.context.principal = f"User:{owner_of(certificate)}"
        except ValueError as error:
            self._refuse("name", f"has shown a certificate whose name cannot be read: {error}")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection is gone; say why, if it is because of TLS."""
        was_handshaking = self.is_handshaking
        self._cancel_deadline()
        super().connectionLost(reason)
        if was_handshaking and isinstance(reason.value, SSL.Error):
            self._report_handshake(reason.value)

    def not_tls(self, first_bytes: bytes) -> None:
        """What the client has sent first is no TLS: say what it seems to be, and end it."""
        kind, what = explain_not_tls(first_bytes, self._listener_name)
        self._refuse(kind, what)

    def _handshake_is_overdue(self) -> None:
        limit_s = self._shared.settings.plog_partial_request_timeout_ms / 1000
        self._refuse("handshake", f"has not ended its TLS handshake after {limit_s:.0f} s")

    def _refuse(self, kind: str, what: str) -> None:
        self._cancel_deadline()
        line = f"closed a connection to the TLS listener {self._listener_name} that {what}"
        self._shared.report(self.context.client_address[0], kind, line)
        transport: Any = self.transport
        transport.abortConnection()

    def _report_handshake(self, error: SSL.Error) -> None:
        transport: Any = self.transport
        failure: VerifyFailure | None = transport.verify_failure
        kind, text = explain_handshake_failure(
            reason_of(error),
            verify_error=failure.error_number if failure is not None else 0,
            owner=failure.owner if failure is not None else "",
        )
        line = f"no TLS connection to the listener {self._listener_name}: {text}"
        self._shared.report(self.context.client_address[0], f"tls {kind}", line)

    def _cancel_deadline(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()


class TlsListenerFactory(ListenerFactory):
    """Makes the protocol above TLS of each accepted connection, or refuses it."""

    def make_protocol(self) -> ProtocolConnection:
        """The protocol of a connection that may stay."""
        return TlsConnection(self._shared, self._context, self._listener.name)


class _TlsProtocol(TLSMemoryBIOProtocol):
    """Twisted's TLS, after a look at the first bytes: OpenSSL cannot say what else they are."""

    verify_failure: VerifyFailure | None = None
    _is_greeted = False

    def dataReceived(self, bytes: bytes) -> None:
        """Bytes as they came from the socket."""
        if not self._is_greeted:
            self._is_greeted = True
            if bytes[0] != _HANDSHAKE_RECORD:
                connection = self.wrappedProtocol
                assert isinstance(connection, TlsConnection)
                connection.not_tls(bytes)
                return
        super().dataReceived(bytes)  # type: ignore[no-untyped-call]

    def loseConnection(self) -> None:
        """Say goodbye and close when all has left, whether or not the client says it too.

        Twisted would wait for that, and a stop of the broker for every client that does not read.
        """
        super().loseConnection()  # type: ignore[no-untyped-call]
        if self.transport is not None:
            self.transport.loseConnection()


_HANDSHAKE_RECORD = 0x16


class TlsFactory(TLSMemoryBIOFactory):
    """Puts TLS below what a `TlsListenerFactory` makes."""

    protocol = _TlsProtocol
    noisy = False

    def __init__(self, server: TlsServer, factory: TlsListenerFactory, clock: Any) -> None:
        # Newer versions of Twisted take a clock here, and would look for the global one.
        parameters = inspect.signature(TLSMemoryBIOFactory.__init__).parameters
        more = {"clock": clock} if "clock" in parameters else {}
        super().__init__(server, False, factory, **more)

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """The protocol; None closes the connection at once."""
        protocol: IProtocol | None = self.wrappedFactory.buildProtocol(addr)
        if protocol is None:
            return None
        return _TlsProtocol(self, protocol)  # type: ignore[no-untyped-call]
