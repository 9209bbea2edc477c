"""Real time and real connections for the simulator's clients, on one thread with a selector.

A `SocketConnection` has the interface of tests/sim/network.py's `Connection`: requests are sent in
order, each response is a `Later`, and `over_ms` is the time after which none of its requests can
reach the broker. Used by arena.py.
"""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.messages import API_BY_KEY
from plog.wire.schema import ApiMessage
from plogd.ports import Later, failed
from tests.sim.checker import Anomaly
from tests.sim.network import ConnectionLost

_SIZE_BYTES = 4
_RECEIVE_BYTES = 1 << 18
_CONNECT_TIMEOUT_S = 60.0
# Not the broker's own address: a client that connects while the broker is down could otherwise be
# assigned the broker's port as its own, and connect to itself.
_OUR_ADDRESS = ("127.0.0.2", 0)


class RealClock:
    """The clocks of this machine, with the interface of the simulated clock."""

    def now_ms(self) -> int:
        """Return the wall-clock time."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Return the monotonic time."""
        return time.monotonic_ns() / 1e6

    def advance_to(self, monotonic_ms: float) -> None:
        """Do nothing; a simulated clock advances when a call is due."""


@dataclass(slots=True)
class _PendingRequest:
    """A request whose response the client awaits."""

    api_key: int
    version: int
    correlation_id: int
    later: Later[ApiMessage]


class SocketConnection:
    """A connection. Clients call `request` and `drop`; the network calls `ready`."""

    def __init__(self, network: SocketNetwork, sock: socket.socket) -> None:
        self._network = network
        self._socket = sock
        self._pending: deque[_PendingRequest] = deque()
        self._next_correlation_id = 0
        self._to_send = bytearray()
        self._received = bytearray()
        self._is_sending = False
        self.is_open = True
        self.over_ms = math.inf
        """The time after which none of its requests can reach the broker."""

    def request(
        self, message: ApiMessage, version: int, *, expects_answer: bool = True
    ) -> Later[ApiMessage]:
        """Send a request and return its response. Fails with ConnectionLost."""
        if not self.is_open:
            return failed(ConnectionLost("the connection is closed"))
        self._next_correlation_id += 1
        number = self._next_correlation_id
        later: Later[ApiMessage] = Later()
        if expects_answer:
            self._pending.append(_PendingRequest(message.api_key, version, number, later))
        else:
            later.fail(ConnectionLost("the request has no response"))
        header = RequestHeader(message.api_key, version, number, "fault")
        self._to_send += encode_request(header, message)
        self._send()
        return later

    def drop(self) -> None:
        """Stop sending; sent requests may take effect until the broker closes its end, too."""
        if self.is_open:
            self._fail_pending("the connection was dropped")
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                self._close()

    def ready(self, events: int) -> None:
        """Read and write after the selector has reported `events`."""
        if events & selectors.EVENT_WRITE:
            self._send()
        if events & selectors.EVENT_READ and self.over_ms == math.inf:
            self._receive()

    def _send(self) -> None:
        try:
            while self._to_send:
                del self._to_send[: self._socket.send(self._to_send)]
        except BlockingIOError:
            pass
        except OSError:
            self._to_send.clear()  # Reading will report the end; responses may precede it.
        if bool(self._to_send) != self._is_sending:
            self._is_sending = bool(self._to_send)
            self._network.wait_for(self._socket, self, sending=self._is_sending)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        self._received += data
        while (size := int.from_bytes(self._received[:_SIZE_BYTES], "big", signed=True)) and len(
            self._received
        ) >= _SIZE_BYTES + size:
            frame = bytes(self._received[_SIZE_BYTES : _SIZE_BYTES + size])
            del self._received[: _SIZE_BYTES + size]
            self._network.before_response()
            if self.is_open:
                self._complete(frame)

    def _complete(self, frame: bytes) -> None:
        if not self._pending:
            raise Anomaly("bad-answer", "a response without a request")
        pending = self._pending.popleft()
        number, position = decode_response_header(frame, pending.api_key, pending.version)
        if number != pending.correlation_id:
            raise Anomaly("answer-order", f"expected {pending.correlation_id}, received {number}")
        response = API_BY_KEY[pending.api_key].response
        body = memoryview(frame)[position:]
        message, used = response.decode_prefix(body, pending.version)
        if used != len(body):
            raise Anomaly("bad-answer", f"{len(body) - used} bytes after the response")
        pending.later.succeed(message)

    def _fail_pending(self, why: str) -> None:
        self.is_open = False
        unanswered, self._pending = self._pending, deque()
        for request in unanswered:
            request.later.fail(ConnectionLost(why))

    def _close(self) -> None:
        """Close the socket after the broker has closed its end or died."""
        self.over_ms = self._network.clock.monotonic_ms()
        self._network.forget(self._socket)
        self._socket.close()
        if self.is_open:
            self._fail_pending("the broker has closed the connection")


class SocketNetwork:
    """All connections to one broker.

    Args:
        where: returns the current address of the broker.
        before_response: called before each response is passed on; it may call `drop_all`.
    """

    def __init__(
        self, clock: RealClock, where: Callable[[], str], before_response: Callable[[], None]
    ) -> None:
        self.clock = clock
        self.before_response = before_response
        self._where = where
        self._selector = selectors.DefaultSelector()

    def connect(self) -> SocketConnection:
        """Return a new connection. Raises ConnectionLost if the broker does not listen."""
        host, _, port = self._where().rpartition(":")
        try:
            sock = socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S, _OUR_ADDRESS)
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        connection = SocketConnection(self, sock)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        return connection

    def wait_for(self, sock: socket.socket, connection: SocketConnection, *, sending: bool) -> None:
        """Select the socket for writing as well, or no longer."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if sending else 0)
        if sock in self._selector.get_map():
            self._selector.modify(sock, events, connection)

    def forget(self, sock: socket.socket) -> None:
        """Stop selecting the socket."""
        self._selector.unregister(sock)

    def turn(self, wait_ms: float) -> None:
        """Handle the events that arrive within `wait_ms`."""
        for key, events in self._selector.select(max(0.0, wait_ms) / 1000):
            key.data.ready(events)

    def drain(self) -> None:
        """Read the remaining responses of a broker that has ended, until all connections end."""
        while self._selector.get_map():
            self.turn(1000)

    def drop_all(self) -> None:
        """Drop all connections; responses that have not been passed on are lost."""
        for key in list(self._selector.get_map().values()):
            key.data.drop()

    def close(self) -> None:
        """Close all connections."""
        for key in list(self._selector.get_map().values()):
            key.data.drop()
            key.fileobj.close()
        self._selector.close()
