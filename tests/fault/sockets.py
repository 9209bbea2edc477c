"""Real time and real connections for the simulator's clients: one thread, no waiting but `select`.

A `SocketConnection` has the face of tests/sim/network.py's `Connection`: requests go out in order,
each answer comes as a `Later`, and `over_ms` says since when nothing of it can arrive at the broker
any more. Used by arena.py.
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
_CONNECT_TIMEOUT_S = 10.0
# Not the broker's own address: or a client that tries while nobody listens may, by chance, be
# given the broker's port as its own, and connect to itself.
_OUR_ADDRESS = ("127.0.0.2", 0)


class RealClock:
    """Both clocks of this machine; time moves by itself."""

    def now_ms(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """The clock that only goes on."""
        return time.monotonic_ns() / 1e6

    def advance_to(self, monotonic_ms: float) -> None:
        """What a simulated clock does when a call is due."""


@dataclass(slots=True)
class _Asked:
    """A request whose answer the client awaits."""

    api_key: int
    version: int
    correlation_id: int
    later: Later[ApiMessage]


class SocketConnection:
    """One connection; clients call `request` and `drop`, the network `ready`."""

    def __init__(self, network: SocketNetwork, sock: socket.socket) -> None:
        self._network = network
        self._socket = sock
        self._asked: deque[_Asked] = deque()
        self._next_correlation_id = 0
        self._to_send = bytearray()
        self._received = bytearray()
        self._is_sending = False
        self.is_open = True
        self.over_ms = math.inf
        """Since when nothing of it can arrive at the broker any more."""

    def request(
        self, message: ApiMessage, version: int, *, expects_answer: bool = True
    ) -> Later[ApiMessage]:
        """Send a request; its answer. Fails with ConnectionLost."""
        if not self.is_open:
            return failed(ConnectionLost("the connection is closed"))
        self._next_correlation_id += 1
        number = self._next_correlation_id
        later: Later[ApiMessage] = Later()
        if expects_answer:
            self._asked.append(_Asked(message.api_key, version, number, later))
        else:
            later.fail(ConnectionLost("no answer was asked for"))
        header = RequestHeader(message.api_key, version, number, "fault")
        self._to_send += encode_request(header, message)
        self._send()
        return later

    def drop(self) -> None:
        """Say no more; what was sent may take effect until the broker has closed its end, too."""
        if self.is_open:
            self._client_hears("the connection was dropped")
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                self._over()

    def ready(self, events: int) -> None:
        """The socket can be read or written."""
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
            self._to_send.clear()  # The end comes by reading: there may be answers before it.
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
            self._over()
            return
        self._received += data
        while (size := int.from_bytes(self._received[:_SIZE_BYTES], "big", signed=True)) and len(
            self._received
        ) >= _SIZE_BYTES + size:
            frame = bytes(self._received[_SIZE_BYTES : _SIZE_BYTES + size])
            del self._received[: _SIZE_BYTES + size]
            if self.is_open:
                self._answered(frame)

    def _answered(self, frame: bytes) -> None:
        if not self._asked:
            raise Anomaly("bad-answer", "an answer nobody asked for")
        asked = self._asked.popleft()
        number, position = decode_response_header(frame, asked.api_key, asked.version)
        if number != asked.correlation_id:
            raise Anomaly("answer-order", f"{asked.correlation_id} is due, {number} came")
        response = API_BY_KEY[asked.api_key].response
        body = memoryview(frame)[position:]
        message, used = response.decode_prefix(body, asked.version)
        if used != len(body):
            raise Anomaly("bad-answer", f"{len(body) - used} bytes behind the answer")
        asked.later.succeed(message)

    def _client_hears(self, why: str) -> None:
        self.is_open = False
        asked, self._asked = self._asked, deque()
        for request in asked:
            request.later.fail(ConnectionLost(why))

    def _over(self) -> None:
        """The broker has closed its end, or has gone."""
        self.over_ms = self._network.clock.monotonic_ms()
        self._network.forget(self._socket)
        self._socket.close()
        if self.is_open:
            self._client_hears("the broker has closed the connection")


class SocketNetwork:
    """All connections to one broker, whose address `where` tells."""

    def __init__(self, clock: RealClock, where: Callable[[], str]) -> None:
        self.clock = clock
        self._where = where
        self._selector = selectors.DefaultSelector()

    def connect(self) -> SocketConnection:
        """A new connection. Raises ConnectionLost while nobody listens."""
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
        """Also tell when the socket can be written, or no longer."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if sending else 0)
        if sock in self._selector.get_map():
            self._selector.modify(sock, events, connection)

    def forget(self, sock: socket.socket) -> None:
        """The connection has ended."""
        self._selector.unregister(sock)

    def turn(self, wait_ms: float) -> None:
        """Hear what comes within `wait_ms`."""
        for key, events in self._selector.select(max(0.0, wait_ms) / 1000):
            key.data.ready(events)

    def hear_to_the_end(self) -> None:
        """The broker's process has ended: take what it still said, and each connection's end."""
        while self._selector.get_map():
            self.turn(1000)

    def close(self) -> None:
        """Cut everything."""
        for key in list(self._selector.get_map().values()):
            key.data.drop()
            key.fileobj.close()
        self._selector.close()
