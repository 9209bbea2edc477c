"""Shared parts of the tests of plogd/net: encoded requests, a scripted dispatch, a reactor.

A request here is an API key (two bytes, as in Kafka) and a text. `ScriptedDispatch` responds with
the same text immediately, unless a test holds it back: then `waiting` has a `Later` of that text.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.logger import ILogObserver, LogLevel, formatEvent
from zope.interface import implementer

from plog.wire.primitives import Part
from plogd.apis.close_connection import CloseConnection
from plogd.apis.dispatch import Dispatched
from plogd.config.listener import Listener
from plogd.config.network_settings import NetworkSettings
from plogd.connection_context import ConnectionContext
from plogd.net.connections import Connections
from plogd.net.listeners import BoundListener, Listeners
from plogd.os_files import OsFile
from plogd.ports import File, Later
from tests.helpers.sim.sim_ports import SimPorts

PRODUCE, FETCH, METADATA = 0, 1, 3
PUMP_MAX_S = 60.0


def body(api_key: int, text: str) -> bytes:
    """Return a request without its size."""
    return struct.pack(">h", api_key) + text.encode()


def frame(api_key: int, text: str) -> bytes:
    """Return a request with its size."""
    data = body(api_key, text)
    return struct.pack(">i", len(data)) + data


def response(text: str) -> bytes:
    """Return the encoded response of `ScriptedDispatch`."""
    return struct.pack(">i", len(text)) + text.encode()


def joined(answer: Sequence[Part]) -> bytes:
    """Return a response without file regions in one piece."""
    pieces = []
    for part in answer:
        assert isinstance(part, bytes), "a file region is not bytes"
        pieces.append(part)
    return b"".join(pieces)


def make_context() -> ConnectionContext:
    """Return the context of some client."""
    return ConnectionContext(
        listener_name="PLAINTEXT",
        security_protocol="PLAINTEXT",
        client_address=("192.0.2.1", 40000),
        local_address=("192.0.2.9", 9092),
    )


class ScriptedDispatch:
    """Responds by echoing, in any way that a test needs. A text ending in "alone" runs alone.

    Attributes:
        started: the texts of all requests, in the order in which they began.
        waiting: the requests held back, by text; `succeed` one with `[response(text)]`.
        views: the views that it received, which it may not keep.
    """

    def __init__(self) -> None:
        self.started: list[str] = []
        self.waiting: dict[str, Later[list[Part] | None]] = {}
        self.cancelled: list[str] = []
        self.views: list[memoryview] = []
        self.contexts: list[ConnectionContext] = []
        self.hold: Callable[[int, str], bool] = lambda api_key, text: False
        self.answer: Callable[[int, str], list[Part] | None] = lambda _, text: [response(text)]
        self.on_start: Callable[[str], None] = lambda text: None

    def __call__(self, view: memoryview, connection: ConnectionContext) -> Dispatched:
        api_key, text = struct.unpack_from(">h", view)[0], str(view[2:], "utf-8")
        self.views.append(view)
        self.contexts.append(connection)
        self.started.append(text)
        self.on_start(text)
        is_produce, runs_alone = api_key == PRODUCE, text.endswith("alone")
        if text == "nonsense":
            raise CloseConnection("the request is invalid")
        if text == "bug":
            raise ZeroDivisionError("a bug")
        if self.hold(api_key, text):
            later: Later[list[Part] | None] = Later(lambda: self.cancelled.append(text))
            self.waiting[text] = later
            return Dispatched(is_produce, later, runs_alone)
        return Dispatched(is_produce, self.answer(api_key, text), runs_alone)

    def release(self, text: str) -> None:
        """Send the response to a request that was held back."""
        self.waiting.pop(text).succeed([response(text)])


def make_connections(
    dispatch: ScriptedDispatch, ports: SimPorts | None = None, **settings: Any
) -> Connections:
    """Return the table of connections, over simulated ports; `settings` are its attributes."""
    ports = ports or SimPorts()
    return Connections(
        dispatch,
        NetworkSettings(**settings),
        ports.bundle(),
    )


@implementer(ILogObserver)
class LogLines(list[str]):
    """Collects texts logged at level "warn" or above."""

    def __call__(self, event: dict[str, Any]) -> None:
        if event["log_level"] in (LogLevel.warn, LogLevel.error, LogLevel.critical):
            self.append(formatEvent(event))


class Pump:
    """A private reactor that runs only while `until` waits for a condition."""

    def __init__(self, reactor: Any = None) -> None:
        self.reactor = reactor or EPollReactor()

    def turn(self, ports: SimPorts | None = None) -> None:
        """Run one iteration: all events that are ready now or within a millisecond."""
        self.reactor.iterate(0.001)
        if ports is not None:
            ports.settle()

    def until(self, condition: Callable[[], object], ports: SimPorts | None = None) -> None:
        """Run until `condition` holds; AssertionError after a minute."""
        deadline = time.monotonic() + PUMP_MAX_S
        while not condition():
            assert time.monotonic() < deadline, "the condition did not become true"
            self.turn(ports)

    def exchange(
        self, client: socket.socket, expected: int, ports: SimPorts | None = None
    ) -> bytes:
        """Read `expected` bytes at the client's end while the reactor runs."""
        received = bytearray()

        def read() -> bool:
            while len(received) < expected and select.select([client], [], [], 0)[0]:
                data = client.recv(expected - len(received))
                assert data, f"closed after {len(received)} of {expected} bytes"
                received.extend(data)
            return len(received) == expected

        self.until(read, ports)
        return bytes(received)

    def end_of_stream(self, client: socket.socket, ports: SimPorts | None = None) -> None:
        """Wait until the broker has closed the connection."""

        def is_closed() -> bool:
            if not select.select([client], [], [], 0)[0]:
                return False
            try:
                return client.recv(65536) == b""
            except ConnectionResetError:
                return True

        self.until(is_closed, ports)

    def close(self) -> None:
        """Close the reactor's descriptors."""
        self.reactor.removeAll()
        for delayed in self.reactor.getDelayedCalls():
            delayed.cancel()
        waker: Any = self.reactor.waker
        waker.connectionLost(None)
        if isinstance(self.reactor, EPollReactor):
            self.reactor._poller.close()


def reactor_of(kind: str) -> Any:
    """Return a new reactor of Twisted: select, poll, epoll or asyncio."""
    if kind == "select":
        from twisted.internet.selectreactor import SelectReactor

        return SelectReactor()
    if kind == "poll":
        from twisted.internet.pollreactor import PollReactor

        return PollReactor()
    if kind == "epoll":
        return EPollReactor()
    from twisted.internet.asyncioreactor import AsyncioSelectorReactor

    return AsyncioSelectorReactor(asyncio.SelectorEventLoop())


class RefusingEpoll:
    """An epoll instance that fails in one of its calls."""

    def __init__(self, epoll: select.epoll, name: str, error: int) -> None:
        self._epoll = epoll
        self._name = name
        self._error = OSError(error, "refused")

    def __getattr__(self, name: str) -> Any:
        return self._fail if name == self._name else getattr(self._epoll, name)

    def _fail(self, *_: object) -> None:
        raise self._error


class WatchedFile(OsFile):
    """A real file that counts its holders and reports the page cache state a test has set."""

    def __init__(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        super().__init__(str(path), os.O_RDWR)
        self.content = content
        self.is_cached = True
        self.asked_cached: list[tuple[int, int]] = []
        self.reads: list[tuple[int, int]] = []
        self.read_error: OSError | None = None
        self.holders = 1

    def cached(self, position: int, length: int) -> bool:
        self.asked_cached.append((position, length))
        return self.is_cached

    def pread(self, length: int, position: int) -> bytes:
        if self.read_error is not None:
            raise self.read_error
        self.reads.append((position, length))
        return super().pread(length, position)

    def retain(self) -> File:
        self.holders += 1
        return super().retain()

    def close(self) -> None:
        self.holders -= 1
        super().close()

    @property
    def is_open(self) -> bool:
        try:
            os.fstat(self.fileno())
        except OSError:
            return False
        return True


def open_all(listeners: Listeners, configured: Sequence[Listener]) -> list[BoundListener]:
    """Bind `configured` and start accepting clients; return their addresses."""
    bound = listeners.bind(configured)
    listeners.listen()
    return bound
