"""The ports clients connect to: opened, accepting, closed.

A listener of the configuration becomes one or more listening sockets: a name such as ``localhost``
may stand for an IPv4 and an IPv6 address, and no host stands for every interface. What accepted
connections do is transport.py's and protocol_connection.py's business; here they get their context,
or are turned away (connections.py).

When the process or the system runs out of file descriptors, accepting pauses and tries again;
clients wait in the kernel's queue meanwhile, and those that are connected notice nothing.

Reactor thread only. Source: tcp(7), accept(2); on Linux a connection inherits the options of the
listening socket.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet import tcp
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger

from plogd.apis.context import ConnectionContext
from plogd.config.listener import Listener
from plogd.net.connections import Connections
from plogd.net.protocol_connection import ProtocolConnection
from plogd.net.transport import ServerTransport

if TYPE_CHECKING:
    from plogd.net.tls_context import TlsServer

log = Logger()

ACCEPTS_PER_TURN = 100
ACCEPT_MAX_MS = 4.0
ACCEPT_PAUSE_MS = 200.0
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
# accept(2) reports errors of the new connection, and EPERM where a firewall forbids it.
_THEIR_ERROR = (errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.EINTR, errno.ETIMEDOUT)
_NO_SUCH_ADDRESS_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundListener:
    """A listener that is open: `port` is the real one, `host` as configured ("" is everywhere)."""

    listener: Listener
    port: int

    def __str__(self) -> str:
        host = self.listener.host or "*"
        return f"{f'[{host}]' if ':' in host else host}:{self.port}"


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


class Listeners:
    """The open listeners of a broker.

    Args:
        tls: by listener name, what makes the TLS connections of those that want it.
    """

    def __init__(
        self, reactor: Any, shared: Connections, tls: Mapping[str, TlsServer] | None = None
    ) -> None:
        self._reactor = reactor
        self._shared = shared
        self._tls = tls or {}
        self._ports: list[PlainPort] = []

    def open_all(self, listeners: Sequence[Listener]) -> list[BoundListener]:
        """Open each of `listeners`, or none.

        Raises CannotListenError if an address is taken, not allowed, or not of this machine.
        """
        try:
            return [self._open(listener, listeners) for listener in listeners]
        except CannotListenError:
            self.close()
            raise

    def close(self) -> Deferred[None]:
        """Stop listening; connections stay. Fires when the ports are free."""
        ports, self._ports = self._ports, []
        closed = DeferredList([maybeDeferred(port.stopListening) for port in ports])
        return closed.addCallback(lambda _: None)

    def _open(self, listener: Listener, beside: Sequence[Listener]) -> BoundListener:
        """Listen on all addresses of one listener; port 0 takes a free one, the same for all."""
        if listener.protocol != "PLAINTEXT" and listener.name not in self._tls:
            raise ValueError(f"{listener}: nobody has prepared its TLS")
        port = listener.port
        missing: CannotListenError | None = None
        has_opened = False
        for address in _addresses(listener.host, port):
            is_dual_stack = address == "::" and not _leaves_ipv4_to_another(listener, beside)
            try:
                opened = self._listen(listener, address, port, is_dual_stack=is_dual_stack)
            except CannotListenError as error:
                if error.socketError.errno not in _NO_SUCH_ADDRESS_HERE:
                    raise
                missing = error
                continue
            self._ports.append(opened)
            has_opened = True
            port = opened.socket.getsockname()[1]
            if is_dual_stack:
                break
        if missing is not None and not has_opened:
            raise missing
        return BoundListener(listener=listener, port=port)

    def _listen(
        self, listener: Listener, address: str, port: int, *, is_dual_stack: bool
    ) -> PlainPort:
        kind, factory = PlainPort, ListenerFactory(self._shared, listener)
        if listener.protocol != "PLAINTEXT":
            kind, factory = self._tls_port(listener)
        opened = kind(
            self._shared,
            port,
            factory,
            backlog=self._shared.settings.socket_listen_backlog_size,
            interface=address,
            reactor=self._reactor,
            is_dual_stack=is_dual_stack,
        )
        opened.startListening()
        return opened

    def _tls_port(self, listener: Listener) -> tuple[type[PlainPort], Any]:
        # Not for those who do not want TLS.
        from plogd.net.tls_port import TlsFactory, TlsListenerFactory, TlsPort

        above = TlsListenerFactory(self._shared, listener)
        return TlsPort, TlsFactory(self._tls[listener.name], above, self._reactor)


def plain_host(host: str) -> str:
    """An address as people write it: IPv4 that came in over an IPv6 socket is IPv4.

    >>> plain_host("::ffff:192.0.2.7"), plain_host("::1")
    ('192.0.2.7', '::1')
    """
    mapped = host.removeprefix("::ffff:")
    return mapped if "." in mapped else host


def _leaves_ipv4_to_another(listener: Listener, beside: Sequence[Listener]) -> bool:
    """Whether an IPv4 address has the port of ``[::]`` for itself."""
    return any(
        other is not listener and other.port == listener.port != 0 and "." in other.host
        for other in beside
    )


def _addresses(host: str, port: int) -> list[str]:
    """The addresses to listen on, in order; "::" and "0.0.0.0" for no host."""
    if not host:
        return ["::", "0.0.0.0"]  # The second where the system has no IPv6.
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise CannotListenError(host, port, error) from error
    # IPv4 first: with port 0 the first address chooses the port.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
