"""One listening socket of a plain listener: it accepts clients and makes their connections.

transport.py and protocol_connection.py move the bytes of accepted connections; here they get their
context, or are refused (connections.py). listeners.py opens the ports; tls_port.py derives those of
TLS listeners from these classes.

When the process or the system runs out of file descriptors, accepting pauses and tries again;
clients wait in the kernel's queue in the meantime, and open connections are not affected.

Reactor thread only. Source: tcp(7), accept(2); on Linux a connection inherits the options of the
listening socket.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

from twisted.internet import tcp
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger

from plogd.config.listener import Listener
from plogd.connection_context import ConnectionContext
from plogd.net.connections import Connections
from plogd.net.protocol_connection import ProtocolConnection
from plogd.net.transport import ServerTransport

log = Logger()

ACCEPTS_PER_TURN = 100
ACCEPT_MAX_MS = 4.0
ACCEPT_PAUSE_MS = 200.0
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
# accept(2) reports errors of the new connection, and EPERM where a firewall forbids it.
_THEIR_ERROR = (errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.EINTR, errno.ETIMEDOUT)


class ListenerFactory(ServerFactory):
    """Makes the protocol of each accepted connection of one listener, or refuses it."""

    noisy = False

    def __init__(self, shared: Connections, listener: Listener) -> None:
        self._shared = shared
        self._listener = listener

    def buildProtocol(self, addr: IAddress | None) -> ProtocolConnection | None:
        """A protocol; None closes the connection at once."""
        host = plain_host(getattr(addr, "host", ""))
        return self.make_protocol() if self._shared.admit(host) else None

    def make_protocol(self) -> ProtocolConnection:
        """The protocol of a connection that may stay."""
        return ProtocolConnection(self._shared, self._context)

    def logPrefix(self) -> str:
        """What Twisted calls this listener in its log lines."""
        return f"listener {self._listener}"

    def _context(self, transport: Any) -> ConnectionContext:
        client, local = transport.getPeer(), transport.getHost()
        return ConnectionContext(
            listener_name=self._listener.name,
            security_protocol=self._listener.protocol,
            client_address=(plain_host(client.host), client.port),
            local_address=(plain_host(local.host), local.port),
        )


class PlainPort(tcp.Port):
    """A listening socket whose connections are `ServerTransport`s.

    Args:
        is_dual_stack: an IPv6 socket takes IPv4 clients as well.
    """

    transport = ServerTransport

    def __init__(
        self, shared: Connections, *args: Any, is_dual_stack: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._shared = shared
        self._is_dual_stack = is_dual_stack

    def createInternetSocket(self) -> socket.socket:
        """The listening socket, with the options its connections are to have."""
        sock: socket.socket = super().createInternetSocket()  # type: ignore[no-untyped-call]
        settings = self._shared.settings
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if settings.socket_send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_send_buffer_bytes)
        if settings.socket_receive_buffer_bytes > 0:
            nbytes = settings.socket_receive_buffer_bytes
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, nbytes)
        if self.addressFamily == socket.AF_INET6:
            # Said, not left to the sysctl net.ipv6.bindv6only.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not self._is_dual_stack)
        return sock

    def doRead(self) -> None:
        """Clients wait: accept them, for a short time so that the others are served too."""
        monotonic_ms = self._shared.clock.monotonic_ms
        until_ms = monotonic_ms() + ACCEPT_MAX_MS
        for _ in range(ACCEPTS_PER_TURN):
            if not self._shared.descriptors.has_room_for_client():
                self._pause("the other descriptors are reserved for logs")
                return
            try:
                accepted, address = self.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _THEIR_ERROR:
                    continue
                self._pause(error.strerror or "", is_remediable=error.errno in _OUT_OF_FILES)
                return
            self._begin(accepted, address)
            if monotonic_ms() >= until_ms:
                return

    def _begin(self, accepted: socket.socket, address: tuple[Any, ...]) -> None:
        """Let the factory decide; an error here is about this connection alone."""
        assert self.factory is not None
        transport = None
        try:
            peer: IAddress = self._buildAddr(address)  # type: ignore[no-untyped-call]
            protocol = self.factory.buildProtocol(peer)
            if protocol is None:
                accepted.close()
                return
            number = self.sessionno
            self.sessionno = number + 1
            transport = self.transport(accepted, protocol, address, self, number, self.reactor)
            protocol.makeConnection(transport)
        except Exception:
            log.failure("a connection from {host} could not be begun", host=address[0])
            if transport is None:
                accepted.close()
            else:
                transport.abortConnection()  # type: ignore[no-untyped-call]

    def _pause(self, why: str, *, is_remediable: bool = True) -> None:
        remedy = "; raise LimitNOFILE or ulimit -n" if is_remediable else ""
        what = f"new clients have to wait: {why}{remedy}"
        self._shared.report(f"port {self._realPortNumber}", "exhausted", what)
        self.stopReading()  # type: ignore[no-untyped-call]
        self._shared.timers.call_later(ACCEPT_PAUSE_MS, self._resume)

    def _resume(self) -> None:
        if self.connected and not self.disconnecting:
            self.startReading()  # type: ignore[no-untyped-call]


def plain_host(host: str) -> str:
    """An address as people write it: IPv4 that came in over an IPv6 socket is IPv4.

    >>> plain_host("::ffff:192.0.2.7"), plain_host("::1")
    ('192.0.2.7', '::1')
    """
    mapped = host.removeprefix("::ffff:")
    return mapped if "." in mapped else host
