"""The listeners of a broker, which are opened and closed together.

A configured listener needs one or more listening sockets: a name such as ``localhost`` may resolve
to an IPv4 and an IPv6 address, and an empty host means all interfaces. Each socket is a `PlainPort`
(listener_port.py) or a `TlsPort` (tls_port.py), which accept the connections.

Reactor thread only.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError

from plogd.config.listener import Listener
from plogd.net.connections import Connections
from plogd.net.listener_port import ListenerFactory, PlainPort

if TYPE_CHECKING:
    from plogd.net.tls_context import TlsServer

_NO_SUCH_ADDRESS_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundListener:
    """An open listener; `port` is the actual port, also if the configured port is 0."""

    listener: Listener
    port: int

    def __str__(self) -> str:
        host = self.listener.host or "*"
        return f"{f'[{host}]' if ':' in host else host}:{self.port}"


class Listeners:
    """The open listeners of a broker.

    Args:
        tls: the `TlsServer` of each TLS listener, by listener name.
    """

    def __init__(
        self, reactor: Any, shared: Connections, tls: Mapping[str, TlsServer] | None = None
    ) -> None:
        self._reactor = reactor
        self._shared = shared
        self._tls = tls or {}
        self._ports: list[PlainPort] = []

    def open_all(self, listeners: Sequence[Listener]) -> list[BoundListener]:
        """Open all `listeners`, or none if one fails.

        Raises:
            CannotListenError: an address is in use, not permitted, or not an address of this host.
        """
        try:
            return [self._open(listener, listeners) for listener in listeners]
        except CannotListenError:
            self.close()
            raise

    def close(self) -> Deferred[None]:
        """Stop listening and keep open connections. Fires when the ports are free."""
        ports, self._ports = self._ports, []
        closed = DeferredList([maybeDeferred(port.stopListening) for port in ports])
        return closed.addCallback(lambda _: None)

    def _open(self, listener: Listener, all_listeners: Sequence[Listener]) -> BoundListener:
        """Listen on all addresses of one listener; port 0 selects one free port for all."""
        if listener.protocol != "PLAINTEXT" and listener.name not in self._tls:
            raise ValueError(f"cannot open {listener}: it has no TLS context")
        port = listener.port
        missing: CannotListenError | None = None
        has_opened = False
        for address in _addresses(listener.host, port):
            is_dual_stack = address == "::" and not _shares_port_with_ipv4(listener, all_listeners)
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
        # Imported here because OpenSSL is not needed without TLS listeners.
        from plogd.net.tls_port import TlsFactory, TlsListenerFactory, TlsPort

        above = TlsListenerFactory(self._shared, listener)
        return TlsPort, TlsFactory(self._tls[listener.name], above, self._reactor)


def _shares_port_with_ipv4(listener: Listener, all_listeners: Sequence[Listener]) -> bool:
    """Return whether another listener uses the port of ``[::]`` with an IPv4 address."""
    return any(
        other is not listener and other.port == listener.port != 0 and "." in other.host
        for other in all_listeners
    )


def _addresses(host: str, port: int) -> list[str]:
    """Return the addresses to listen on, in order; "::" and "0.0.0.0" for an empty host."""
    if not host:
        return ["::", "0.0.0.0"]  # The second is used if the system has no IPv6.
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise CannotListenError(host, port, error) from error
    # IPv4 first: with port 0, the first address determines the port.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
