"""The listeners of a broker, which are bound, opened and closed together.

A broker binds its listeners when it starts, so that it knows their ports, and an address in use is
reported before the data is loaded. It listens once it serves requests.

A configured listener needs one or more listening sockets: a name such as ``localhost`` may resolve
to an IPv4 and an IPv6 address, and an empty host means all interfaces. Each socket is a `PlainPort`
(listener_port.py) or a `TlsPort` (tls_port.py), which accept the connections. If systemd has opened
sockets for a listener (passed_sockets.py), the listener uses only those sockets.

Reactor thread only.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError

from plogd.config.listener import Listener
from plogd.net.connections import Connections
from plogd.net.listener_port import ListenerFactory, PlainPort
from plogd.net.passed_sockets import PassedSocket, listening_addresses
from plogd.net.poller import Poller

if TYPE_CHECKING:
    from plogd.net.tls.tls_context import TlsServer

# These are not errors if another address works: localhost may resolve to ::1 on a host without
# IPv6.
_NO_SUCH_ADDRESS_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundListener:
    """An open listener; `port` is the actual port, even if the configured port is 0."""

    listener: Listener
    port: int

    @property
    def opened(self) -> Listener:
        """The listener with its actual port."""
        return replace(self.listener, port=self.port)

    def __str__(self) -> str:
        host = self.listener.host or "*"
        return f"{f'[{host}]' if ':' in host else host}:{self.port}"


class Listeners:
    """The open listeners of a broker.

    Args:
        tls: the `TlsServer` of each TLS listener, by listener name.
        passed: the sockets that systemd has opened.
    """

    def __init__(
        self,
        reactor: Any,
        shared: Connections,
        tls: Mapping[str, TlsServer] | None = None,
        passed: Sequence[PassedSocket] = (),
    ) -> None:
        self._reactor = reactor
        self._shared = shared
        self._tls = tls or {}
        self._passed = passed
        self._ports: list[PlainPort] = []
        self._poller: Poller | None = None

    def bind(self, listeners: Sequence[Listener]) -> list[BoundListener]:
        """Reserve the addresses of all `listeners`, or of none if one fails.

        Clients are refused until `listen` is called. Returns one or more addresses for each
        listener.

        Raises:
            CannotListenError: an address is in use, not permitted, or not an address of this host.
        """
        try:
            return [bound for each in listeners for bound in self._bind(each, listeners)]
        except CannotListenError:
            # Otherwise, the addresses would stay reserved for a broker that fails to start.
            self.close()
            self.release()
            raise

    def listen(self) -> None:
        """Start accepting clients. Raises CannotListenError, and accepts no clients then."""
        try:
            for port in self._ports:
                port.startListening()
        except CannotListenError:
            # Otherwise, the ports that are already open would accept clients of a broker that fails
            # to start.
            self.close()
            self.release()
            raise

    def close(self) -> Deferred[None]:
        """Stop listening, but keep open connections. The result fires when the ports are closed."""
        ports, self._ports = self._ports, []
        for port in ports:
            port.release()
        # Unlike gatherResults, this waits for all ports even if one of them fails to close.
        closed = DeferredList([maybeDeferred(port.stopListening) for port in ports])
        return closed.addCallback(lambda _: None)

    def release(self) -> None:
        """Close the poller, after all connections are closed."""
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.release()

    def _make_poller(self) -> Poller:
        shared = self._shared
        return Poller(self._reactor, shared.turn, shared.clock, shared.run_queue.spent)

    def _bind(self, listener: Listener, all_listeners: Sequence[Listener]) -> list[BoundListener]:
        """Bind all addresses of one listener; port 0 selects one free port for all of them."""
        if listener.protocol != "PLAINTEXT" and listener.name not in self._tls:
            raise ValueError(f"cannot open {listener}: it has no TLS context")
        if any(passed.listener.name == listener.name for passed in self._passed):
            return self._adopt(listener)
        port = listener.port
        missing: CannotListenError | None = None
        has_bound = False
        for address in listening_addresses(listener):
            is_dual_stack = address == "::" and not _shares_port_with_ipv4(listener, all_listeners)
            try:
                port = self._bind_port(listener, address, port, is_dual_stack=is_dual_stack)
            except CannotListenError as error:
                if error.socketError.errno not in _NO_SUCH_ADDRESS_HERE:
                    raise
                missing = error
                continue
            has_bound = True
            # The socket also accepts IPv4 clients, so binding 0.0.0.0 would fail.
            if is_dual_stack:
                break
        if missing is not None and not has_bound:
            raise missing
        return [BoundListener(listener=listener, port=port)]

    def _adopt(self, listener: Listener) -> list[BoundListener]:
        """Use the sockets that were passed for this listener."""
        passed = [each for each in self._passed if each.listener == listener]
        for each in passed:
            self._bind_port(
                listener, each.host, each.port, is_dual_stack=each.is_dual_stack, sock=each.sock
            )
        return [BoundListener(listener=each.bound_listener(), port=each.port) for each in passed]

    def _bind_port(
        self,
        listener: Listener,
        address: str,
        port: int,
        *,
        is_dual_stack: bool,
        sock: socket.socket | None = None,
    ) -> int:
        """Create and bind a port, with `sock` if it is given; return its number."""
        kind, factory, poller = PlainPort, ListenerFactory(self._shared, listener), None
        if listener.protocol != "PLAINTEXT":
            kind, factory = self._tls_port(listener)
        else:
            poller = self._poller = self._poller or self._make_poller()
        made = kind(
            self._shared,
            port,
            factory,
            backlog=self._shared.settings.socket_listen_backlog_size,
            interface=address,
            reactor=self._reactor,
            is_dual_stack=is_dual_stack,
            passed=sock,
            poller=poller,
        )
        number = made.bind()
        # Only now: if the address cannot be bound, there is nothing to close.
        self._ports.append(made)
        return number

    def _tls_port(self, listener: Listener) -> tuple[type[PlainPort], Any]:
        # Imported here because OpenSSL is not needed without TLS listeners.
        from plogd.net.tls.tls_port import TlsFactory, TlsListenerFactory, TlsPort

        above = TlsListenerFactory(self._shared, listener)
        return TlsPort, TlsFactory(self._tls[listener.name], above, self._reactor)


def _shares_port_with_ipv4(listener: Listener, all_listeners: Sequence[Listener]) -> bool:
    """Return whether another listener uses the port of ``[::]`` on an IPv4 address."""
    # A dual-stack socket on this port would already have taken the IPv4 address.
    return any(
        other is not listener and other.port == listener.port != 0 and "." in other.host
        for other in all_listeners
    )
