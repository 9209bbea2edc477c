"""The ports of TLS listeners, which use Twisted's TLS implementation and the copying output.

A client's `TlsConnection` uses Twisted's TLSMemoryBIOProtocol and its standard TCP transport, never
a `ServerTransport`, because OpenSSL must encrypt every byte. This module adds the detection of
clients that do not use TLS, a timeout for handshakes, explanations of failed handshakes, and the
principal from the client's certificate.

Imported only if a listener uses TLS; reactor thread only. Invariants: a connection is counted from
its first packet, even before the handshake; every request has its connection's principal.
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
from plogd.net.tls.protocol_connection import ProtocolConnection
from plogd.net.tls.tls_context import TlsServer, VerifyFailure, owner_of
from plogd.net.tls.tls_failures import explain_handshake_failure
from plogd.net.wrong_protocol import explain_not_tls
from plogd.ports import Timer


class TlsTransport(tcp.Server):
    """Twisted's TCP transport, extended to postpone handshakes while the broker is busy.

    A handshake takes a millisecond or more, so hundreds of new clients would delay all other
    clients. While the broker is busy, handshakes wait in the run queue.
    """

    def doRead(self) -> Any:
        """Read from the socket, unless a handshake has to wait."""
        tls = self.protocol
        assert isinstance(tls, _TlsProtocol), "TlsFactory makes the protocols of a TlsPort"
        connection = tls.wrappedProtocol
        assert isinstance(connection, TlsConnection), "TlsListenerFactory makes the connections"
        if not connection.is_handshaking:
            return super().doRead()
        shared = connection.shared
        if shared.run_queue.is_behind:
            # Otherwise, epoll would report the socket again in each pass.
            self.stopReading()  # type: ignore[no-untyped-call]
            shared.run_queue.add(self)
            return None
        started_ms = shared.clock.monotonic_ms()
        outcome = super().doRead()
        shared.run_queue.spent(shared.clock.monotonic_ms() - started_ms)
        return outcome

    def take_turn(self) -> None:
        """Continue a postponed handshake; the run queue limits the time of each pass."""
        if self.disconnected:
            return
        self.startReading()  # type: ignore[no-untyped-call]
        why = super().doRead()
        if why is not None:
            self.stopReading()  # type: ignore[no-untyped-call]
            self.stopWriting()  # type: ignore[no-untyped-call]
            self.connectionLost(Failure(why))


class TlsPort(PlainPort):
    """A listening socket whose connections use TLS."""

    transport = TlsTransport  # type: ignore[assignment]


@implementer(IHandshakeListener)
class TlsConnection(ProtocolConnection):
    """The protocol for a client connection that uses TLS."""

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
        """Start the handshake timeout."""
        super().connectionMade()
        # The timeout for incomplete requests also applies to handshakes.
        limit_ms = self._shared.settings.plog_partial_request_timeout_ms
        self._deadline = self._shared.timers.call_later(limit_ms, self._handshake_is_overdue)

    @property
    def is_handshaking(self) -> bool:
        """Return whether the handshake is in progress."""
        return self._deadline is not None

    def handshakeCompleted(self) -> None:
        """Take the principal from the client's certificate, if it sent one."""
        self._cancel_deadline()
        transport: Any = self.transport
        certificate = transport.getPeerCertificate()
        if certificate is None:
            return
        try:
            self.context.principal = f"User:{owner_of(certificate)}"
        except ValueError as error:
            # Without a principal, the client would be treated as anonymous.
            self._refuse("name", f"presented a certificate with an unreadable subject: {error}")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Clean up, and log the reason if the handshake failed."""
        was_handshaking = self.is_handshaking
        self._cancel_deadline()
        super().connectionLost(reason)
        # Any other reason, such as a reset, says nothing about certificates or settings.
        if was_handshaking and isinstance(reason.value, SSL.Error):
            self._report_handshake(reason.value)

    def not_tls(self, first_bytes: bytes) -> None:
        """Close the connection of a client that does not use TLS, and log what it sent."""
        kind, explanation = explain_not_tls(first_bytes, self._listener_name)
        self._refuse(kind, explanation)

    def _handshake_is_overdue(self) -> None:
        limit_s = self._shared.settings.plog_partial_request_timeout_ms / 1000
        self._refuse("handshake", f"did not complete its TLS handshake within {limit_s:.0f} s")

    def _refuse(self, kind: str, why: str) -> None:
        self._cancel_deadline()
        line = f"closed a connection to the TLS listener {self._listener_name}: the client {why}"
        self._shared.report(self.context, kind, line)
        transport: Any = self.transport
        # Without close_notify, which is of no use to a client that does not speak TLS.
        transport.abortConnection()

    def _report_handshake(self, error: SSL.Error) -> None:
        transport: Any = self.transport
        failure: VerifyFailure | None = transport.verify_failure
        kind, text = explain_handshake_failure(
            reason_of(error),
            verify_error=failure.error_number if failure is not None else 0,
            owner=failure.owner if failure is not None else "",
        )
        line = f"TLS handshake with listener {self._listener_name} failed: {text}"
        self._shared.report(self.context, f"tls {kind}", line)

    def _cancel_deadline(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()


class TlsListenerFactory(ListenerFactory):
    """Creates the `TlsConnection` of each accepted connection, if the connection is admitted."""

    def make_protocol(self) -> ProtocolConnection:
        """Return a protocol for an admitted connection."""
        return TlsConnection(self._shared, self._context, self._listener.name)


class _TlsProtocol(TLSMemoryBIOProtocol):
    """Twisted's TLS protocol, which first checks that the client uses TLS.

    OpenSSL would report only an error, not the protocol that the client uses.
    """

    verify_failure: VerifyFailure | None = None
    _is_greeted = False

    def dataReceived(self, bytes: bytes) -> None:
        """Handle encrypted bytes from the socket."""
        if not self._is_greeted:
            self._is_greeted = True
            if bytes[0] != _HANDSHAKE_RECORD:
                connection = self.wrappedProtocol
                assert isinstance(connection, TlsConnection)
                connection.not_tls(bytes)
                return
        super().dataReceived(bytes)  # type: ignore[no-untyped-call]

    def loseConnection(self) -> None:
        """Send close_notify, and close the connection without waiting for the client's reply.

        Twisted would wait for the reply, so a client that does not read would delay a shutdown.
        """
        super().loseConnection()  # type: ignore[no-untyped-call]
        if self.transport is not None:
            self.transport.loseConnection()


# The type of a TLS record that contains handshake messages: RFC 8446, section 5.1.
_HANDSHAKE_RECORD = 0x16


class TlsFactory(TLSMemoryBIOFactory):
    """Wraps the protocols of a `TlsListenerFactory` in TLS."""

    protocol = _TlsProtocol
    noisy = False

    def __init__(self, server: TlsServer, factory: TlsListenerFactory, clock: Any) -> None:
        # Newer versions of Twisted accept a clock; without it, they use the global reactor.
        parameters = inspect.signature(TLSMemoryBIOFactory.__init__).parameters
        more = {"clock": clock} if "clock" in parameters else {}
        super().__init__(server, False, factory, **more)

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Return the protocol, or None to close the connection immediately."""
        # Twisted's own implementation cannot refuse a connection.
        protocol: IProtocol | None = self.wrappedFactory.buildProtocol(addr)
        if protocol is None:
            return None
        return _TlsProtocol(self, protocol)  # type: ignore[no-untyped-call]
