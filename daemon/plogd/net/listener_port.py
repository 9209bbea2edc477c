"""A listening socket of a plain listener, which accepts client connections.

`ListenerFactory` creates the context for each accepted connection, unless connections.py rejects
the connection; transport.py and protocol_connection.py move its bytes. listeners.py opens the
ports, and tls_port.py derives the ports of TLS listeners from these classes.

When the process or the system runs out of file descriptors, the port stops accepting for a short
time and retries. Meanwhile, clients wait in the kernel's queue, and open connections are not
affected.

Reactor thread only. Source: tcp(7), accept(2).
"""

from __future__ import annotations

import errno
import socket
from typing import Any

from twisted.internet import tcp
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger

from plogd.config.listener import Listener
from plogd.connection_context import ConnectionContext
from plogd.net.connections import Connections
from plogd.net.poller import Poller
from plogd.net.tls.protocol_connection import ProtocolConnection
from plogd.net.transport import ServerTransport

log = Logger()

ACCEPTS_PER_TURN = 100
"""The limit of Twisted's tcp.Port."""
ACCEPT_MAX_MS = 4.0
ACCEPT_PAUSE_MS = 200.0
"""Duration of a pause while no descriptor is free; no event reports that a descriptor was
closed."""
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
# accept(2) reports errors on the new connection, and EPERM if a firewall rejects it.
_THEIR_ERROR = (errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.EINTR, errno.ETIMEDOUT)


class ListenerFactory(ServerFactory):
    """Creates a protocol for each accepted connection to one listener, if it is admitted."""

    noisy = False

    def __init__(self, shared: Connections, listener: Listener) -> None:
        self._shared = shared
        self._listener = listener

    def buildProtocol(self, addr: IAddress | None) -> ProtocolConnection | None:
        """Return a protocol, or None to close the connection immediately."""
        host = plain_host(getattr(addr, "host", ""))
        return self.make_protocol() if self._shared.admit(host) else None

    def make_protocol(self) -> ProtocolConnection:
        """Return a protocol for an admitted connection."""
        return ProtocolConnection(self._shared, self._context)

    def logPrefix(self) -> str:
        """Return this listener's name for Twisted's log lines."""
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

    `bind` reserves the address, and `startListening` accepts clients. In between, the kernel
    refuses connections.

    Args:
        is_dual_stack: whether an IPv6 socket also accepts IPv4 clients.
        passed: a socket that is already listening, and that may also be open in other processes.
    """

    transport = ServerTransport

    def __init__(
        self,
        shared: Connections,
        *args: Any,
        is_dual_stack: bool = False,
        passed: socket.socket | None = None,
        poller: Poller | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._shared = shared
        self._waits_with: Any = poller or self.reactor
        self._is_dual_stack = is_dual_stack
        # Twisted does not bind a preexisting socket, and only closes it at the end: a shutdown()
        # would also end the queue of waiting clients in the other processes.
        self._passed = passed

    def bind(self) -> int:
        """Bind the socket, unless it was passed; return its port. Raises CannotListenError."""
        if self._passed is not None:
            self._set_inherited_options(self._passed)
            self._preexistingSocket = self._passed
            return int(self._passed.getsockname()[1])
        sock = None
        try:
            sock = self.createInternetSocket()
            sock.bind(self._address())
        except OSError as error:
            if sock is not None:
                sock.close()
            raise CannotListenError(self.interface, self.port, error) from error
        self._preexistingSocket = sock
        return int(sock.getsockname()[1])

    def _address(self) -> Any:
        if self.addressFamily != socket.AF_INET6:
            return self.interface, self.port
        # The address of an interface contains a number, the scope.
        numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return socket.getaddrinfo(self.interface, self.port, flags=numeric)[0][4]

    def startListening(self) -> None:
        """Start accepting clients, after `bind`. Raises CannotListenError."""
        assert self._preexistingSocket is not None, "bind has not been called"
        try:
            # On a socket that is already listening, listen(2) only changes the backlog.
            self._preexistingSocket.listen(self.backlog)
        # Another process may have bound the same address, and listens there now.
        except OSError as error:
            raise CannotListenError(self.interface, self.port, error) from error
        super().startListening()
        self._shouldShutdown = self._passed is None

    def release(self) -> None:
        """Close the socket if the port has not started to listen."""
        if self._preexistingSocket is not None:
            self._preexistingSocket.close()
            self._preexistingSocket = None

    def createInternetSocket(self) -> socket.socket:
        """Create the listening socket with the options that its connections inherit."""
        sock: socket.socket = super().createInternetSocket()  # type: ignore[no-untyped-call]
        self._set_inherited_options(sock)
        if self.addressFamily == socket.AF_INET6:
            # Always set, because the default depends on the sysctl net.ipv6.bindv6only.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not self._is_dual_stack)
        return sock

    def _set_inherited_options(self, sock: socket.socket) -> None:
        # On Linux, an accepted socket inherits these options from the listening socket.
        settings = self._shared.settings
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if settings.socket_send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_send_buffer_bytes)
        sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, settings.plog_socket_unsent_max_bytes
        )
        if settings.socket_receive_buffer_bytes > 0:
            nbytes = settings.socket_receive_buffer_bytes
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, nbytes)

    def doRead(self) -> None:
        """Accept waiting clients for a limited time, so that open connections are also served."""
        monotonic_ms = self._shared.clock.monotonic_ms
        until_ms = monotonic_ms() + ACCEPT_MAX_MS
        for _ in range(ACCEPTS_PER_TURN):
            if not self._shared.descriptors.has_room_for_client():
                self._pause("the remaining file descriptors are reserved for logs")
                return
            try:
                accepted, address = self.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _THEIR_ERROR:
                    continue
                # Without a pause, epoll would report the waiting client in every pass.
                self._pause(error.strerror or "", is_remediable=error.errno in _OUT_OF_FILES)
                return
            self._begin(accepted, address)
            if monotonic_ms() >= until_ms:
                return

    def _begin(self, accepted: socket.socket, address: tuple[Any, ...]) -> None:
        """Start an accepted connection; an error closes only this connection."""
        assert self.factory is not None
        transport = None
        try:
            peer: IAddress = self._buildAddr(address)  # type: ignore[no-untyped-call]
            protocol = self.factory.buildProtocol(peer)
            if protocol is None:
                # The rejection has been counted and logged; a Kafka client retries with a backoff.
                accepted.close()
                return
            number = self.sessionno
            self.sessionno = number + 1
            transport = self.transport(accepted, protocol, address, self, number, self._waits_with)
            protocol.makeConnection(transport)
        except Exception:
            log.failure("cannot start the connection of {client}", client=plain_host(address[0]))
            if transport is None:
                accepted.close()
            else:
                transport.abortConnection()  # type: ignore[no-untyped-call]

    def _pause(self, why: str, *, is_remediable: bool = True) -> None:
        remedy = "; raise LimitNOFILE or ulimit -n" if is_remediable else ""
        event = f"paused accepting connections: {why}{remedy}"
        self._shared.report_port(self._realPortNumber or 0, "exhausted", event)
        self.stopReading()  # type: ignore[no-untyped-call]
        self._shared.timers.call_later(ACCEPT_PAUSE_MS, self._resume)

    def _resume(self) -> None:
        if self.connected and not self.disconnecting:
            self.startReading()  # type: ignore[no-untyped-call]


def plain_host(host: str) -> str:
    """Return an address, as IPv4 if it is an IPv4-mapped IPv6 address.

    >>> plain_host("::ffff:192.0.2.7"), plain_host("::1")
    ('192.0.2.7', '::1')
    """
    mapped = host.removeprefix("::ffff:")
    return mapped if "." in mapped else host
