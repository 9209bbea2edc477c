"""`Poller`: waits for the sockets of plain connections in an epoll descriptor of its own.

Twisted's reactor watches this descriptor as a single reader, so it works with any reactor that can
watch a descriptor. For each event of a socket, Twisted sets a logging context and looks up the
socket's object, which takes as long as a small request. Here, the events of one round are handled
in one call of the reactor, as one turn (`ports.Turn`): their appends share a sync round, and their
responses are sent at the end of the round, so that the clients wake up after the broker has read
all requests.

Transports use it like a reactor (`IReactorFDSet`). Reactor thread only. Invariant: a socket is
registered as long as its transport wants to read or to write, and never longer than it is open.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from twisted.internet import main
from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from plogd.logging import RateLimit
from plogd.ports import Clock, Turn

log = Logger()

MAX_EVENTS: Final = 64
"""Sockets served in one round. The kernel returns the others first in the next round, and timers
and other descriptors are served in between."""
_ENDED: Final = select.EPOLLHUP | select.EPOLLERR
_LOG_INTERVAL_MS: Final = 60_000.0
_REMEDIES: Final = {errno.ENOSPC: "; raise fs.epoll.max_user_watches", errno.ENOMEM: "; add memory"}


class Pollable(Protocol):
    """A transport of Twisted."""

    socket: socket.socket

    def fileno(self) -> int: ...

    def doRead(self) -> BaseException | None: ...

    def doWrite(self) -> BaseException | None: ...

    def connectionLost(self, reason: Failure) -> None: ...


@implementer(IReadDescriptor)
class Poller:
    """The sockets that wait for events; `reactor` provides everything else.

    `spent(milliseconds)` is called with the time that the end of a round has taken.
    """

    def __init__(
        self, reactor: Any, turn: Turn, clock: Clock, spent: Callable[[float], None]
    ) -> None:
        self._reactor = reactor
        self._turn = turn
        self._clock = clock
        self._spent = spent
        self._epoll = select.epoll()
        self._fd_by_transport: dict[Pollable, int] = {}
        self._transport_by_fd: dict[int, Pollable] = {}
        self._events: dict[int, int] = {}
        self._refusals = RateLimit(_LOG_INTERVAL_MS)
        self.callLater = reactor.callLater
        reactor.addReader(self)

    # -- used by transports ---------------------------------------------------------------------

    def addReader(self, transport: Pollable) -> None:
        """Call `doRead` when the socket is readable."""
        self._change(transport, add=select.EPOLLIN)

    def removeReader(self, transport: Pollable) -> None:
        """Stop calling `doRead`."""
        self._change(transport, remove=select.EPOLLIN)

    def addWriter(self, transport: Pollable) -> None:
        """Call `doWrite` when the socket is writable."""
        self._change(transport, add=select.EPOLLOUT)

    def removeWriter(self, transport: Pollable) -> None:
        """Stop calling `doWrite`."""
        self._change(transport, remove=select.EPOLLOUT)

    def _change(self, transport: Pollable, *, add: int = 0, remove: int = 0) -> None:
        fd = self._fd_by_transport.get(transport)
        if fd is None:
            if add:
                self._register(transport, add)
            return
        before = self._events[fd]
        wanted = before & ~remove | add
        if not wanted:
            # Without any event, the kernel would still report errors, in each round.
            self._unregister(transport, fd)
        elif wanted != before:
            self._epoll.modify(fd, wanted)
            self._events[fd] = wanted

    def _register(self, transport: Pollable, events: int) -> None:
        fd = transport.fileno()
        try:
            self._epoll.register(fd, events)
        except OSError as error:
            self._refuse(transport, error)
            return
        self._fd_by_transport[transport] = fd
        self._transport_by_fd[fd] = transport
        self._events[fd] = events

    def _refuse(self, transport: Pollable, error: OSError) -> None:
        """Close a connection whose socket the kernel cannot watch: it would wait forever."""
        suppressed = self._refusals.admit(error.errno, self._clock.monotonic_ms())
        if suppressed is not None:
            log.warn(
                "closed a connection: cannot wait for its socket: {error}{remedy}{again}",
                error=error,
                remedy=_REMEDIES.get(error.errno or 0, ""),
                again=f" ({suppressed} more suppressed)" if suppressed else "",
            )
        # Later, because the transport may not be complete, or may be in the middle of a call.
        self.callLater(0, self._lose, transport, Failure(error))

    def _unregister(self, transport: Pollable, fd: int) -> None:
        del self._fd_by_transport[transport], self._transport_by_fd[fd], self._events[fd]
        self._epoll.unregister(fd)

    # -- used by the reactor --------------------------------------------------------------------

    def fileno(self) -> int:
        """Return the epoll descriptor, which is readable while a socket has an event."""
        return -1 if self._epoll.closed else self._epoll.fileno()

    def logPrefix(self) -> str:
        """Return the name of this descriptor in Twisted's log."""
        return "Poller"

    def doRead(self) -> None:
        """Serve the sockets that have an event."""
        try:
            self._serve_round()
        # After an error, the reactor would drop the poller, and with it all connections.
        except BaseException:
            log.failure("a round of the poller failed unexpectedly")

    def _serve_round(self) -> None:
        with self._turn:
            # Looked up before the first one is served: if that closes another socket of the round,
            # the descriptor may belong to a new connection.
            ready = [
                (self._transport_by_fd.get(fd), fd, event)
                for fd, event in self._epoll.poll(0, MAX_EVENTS)
            ]
            for transport, fd, event in ready:
                if transport is None:
                    # An earlier error has left the descriptor, which would be reported forever.
                    if fd not in self._transport_by_fd:
                        # Fails if a forked child keeps the socket open. The other sockets of the
                        # round must still be served.
                        with contextlib.suppress(OSError):
                            self._epoll.unregister(fd)
                elif self._fd_by_transport.get(transport) == fd:
                    self._serve(transport, fd, event)
            served_ms = self._clock.monotonic_ms()
        # The connections count the time of their turns, but not that of the responses.
        self._spent(self._clock.monotonic_ms() - served_ms)

    def _serve(self, transport: Pollable, fd: int, event: int) -> None:
        why: BaseException | None = None
        try:
            if event & _ENDED and not event & select.EPOLLIN:
                is_reading = self._events[fd] & select.EPOLLIN
                why = main.CONNECTION_DONE if is_reading else main.CONNECTION_LOST
            elif event & select.EPOLLIN:
                why = transport.doRead()
            # Reading may have ended the connection.
            if why is None and event & select.EPOLLOUT and transport in self._fd_by_transport:
                why = transport.doWrite()
        except BaseException as error:
            log.failure("serving a connection failed unexpectedly")
            why = error
        if why is not None:
            self._lose(transport, Failure(why))

    def _lose(self, transport: Pollable, reason: Failure) -> None:
        try:
            self.removeReader(transport)
            self.removeWriter(transport)
            transport.connectionLost(reason)
        except Exception:
            log.failure("closing a connection failed unexpectedly")

    def connectionLost(self, reason: Failure) -> None:
        """Close all connections and the descriptor; the reactor calls this when it stops."""
        for transport in tuple(self._fd_by_transport):
            self._lose(transport, reason)
        if not self._epoll.closed:
            self._epoll.close()

    # -- the end --------------------------------------------------------------------------------

    def release(self) -> None:
        """Stop waiting, after all connections are closed."""
        self._reactor.removeReader(self)
        self._epoll.close()

    def forget(self) -> None:
        """Close the inherited descriptors in a forked child."""
        # Nothing is unregistered: the epoll instance is also the parent's.
        for transport in self._fd_by_transport:
            transport.socket.close()
        self._epoll.close()
