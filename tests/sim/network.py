"""The network between scripted clients and one broker: delays, dropped connections, lost responses.

A `Connection` is both ends of one TCP connection. Frames of one direction arrive in the order in
which they were sent, frames of different connections in any order. A dropped connection ends
immediately at the client; the broker still receives some of the frames in transit and detects the
end later. So a response is lost, or a request arrives after the client has retried it on another
connection.

The broker's handling of the frames is in server_end.py. For tests of plog's own client,
tests/helpers/client/client_on_sim_network.py uses the same connections.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.messages import API_BY_KEY
from plog.wire.schema import ApiMessage
from plogd.ports import Later, failed
from tests.helpers.sim.sim_time import SimClock, SimTimers
from tests.sim.checker import Anomaly
from tests.sim.server_end import Lane, Server, ServerEnd

_SIZE_BYTES = 4
CLIENT_ID = "sim"


class ConnectionLost(Exception):
    """No connection, or it was lost: the outcome of a request is unknown."""


@dataclass(slots=True)
class _PendingRequest:
    """A request whose response the client is waiting for."""

    api_key: int
    version: int
    correlation_id: int
    later: Later[ApiMessage]


class Network:
    """All connections; reports anomalies to `fail`, `max_delay_ms` bounds a frame's delay."""

    def __init__(
        self,
        clock: SimClock,
        timers: SimTimers,
        chance: random.Random,
        fail: Callable[[Exception], None],
    ) -> None:
        self.clock = clock
        self.timers = timers
        self.chance = chance
        self.fail = fail
        self.forgives: Callable[[Exception], bool] = lambda error: False
        """Whether an unexpected error of the broker is permitted: it was injected."""
        self.max_delay_ms = 5.0
        self.broker_id = -1
        """The broker at the other end, if there are several."""
        self.at_server: Callable[[Callable[[], None]], None] = lambda function: function()
        """Calls a function in the broker's process, later if the process is paused."""
        self.server: Server | None = None
        self.connections: list[Connection] = []
        self._ports = 40_000

    def connect(self) -> Connection:
        """Return a new connection. Raises ConnectionLost while the broker does not listen."""
        if self.server is None:
            raise ConnectionLost("connection refused")
        self._ports += 1
        connection = Connection(self, self.server, self._ports)
        self.connections.append(connection)
        return connection

    def server_died(self) -> None:
        """End all connections after the broker's process has ended."""
        self.server = None
        for connection in list(self.connections):
            connection.server_died()

    def server_stops(self) -> None:
        """Close every connection of a stopping broker and refuse new ones."""
        self.server = None
        for connection in list(self.connections):
            connection.close_by_server()

    def delay_ms(self) -> float:
        """Return the delay of the next frame."""
        return self.chance.random() ** 2 * self.max_delay_ms


class Connection:
    """Both ends of one connection; clients call `request` and `drop`."""

    def __init__(self, network: Network, server: Server, port: int) -> None:
        self._network = network
        self._pending: deque[_PendingRequest] = deque()
        self._sent_without_response = False
        self._next_correlation_id = 0
        self._up = Lane(network, self._arrived)
        self._server_end = ServerEnd(network, server, port, self._answered, self._closed_by_server)
        self.is_open = True
        self.over_ms = math.inf
        """The time from which no frame of this connection can arrive at the broker."""

    @property
    def broker_id(self) -> int:
        """The broker at the other end, if there are several."""
        return self._network.broker_id

    # -- the client's end ---------------------------------------------------------------------

    def request(
        self, message: ApiMessage, version: int, *, expects_answer: bool = True
    ) -> Later[ApiMessage]:
        """Send a request; return its response. Fails with ConnectionLost."""
        if not self.is_open:
            return failed(ConnectionLost("the connection is closed"))
        self._next_correlation_id += 1
        number = self._next_correlation_id
        header = RequestHeader(message.api_key, version, number, CLIENT_ID)
        later: Later[ApiMessage] = Later()
        if expects_answer:
            self._pending.append(_PendingRequest(message.api_key, version, number, later))
        else:
            self._sent_without_response = True
            later.fail(ConnectionLost("no response was requested"))
        frame = encode_request(header, message)
        self._up.send(lambda: frame[_SIZE_BYTES:])
        return later

    def drop(self) -> None:
        """Break the connection: pending requests may or may not take effect, even later."""
        if not self.is_open:
            return
        network = self._network
        self._up.cut(network.chance.random())
        self._close_client_end("the connection was dropped")
        delay_ms = network.delay_ms() * network.chance.choice((0, 1, 20))
        network.timers.call_later(delay_ms, self._close_server_end)

    def _close_client_end(self, why: str) -> None:
        self.is_open = False
        pending, self._pending = self._pending, deque()
        for request in pending:
            request.later.fail(ConnectionLost(why))

    def _answered(self, data: bytes) -> None:
        if not self.is_open:
            return
        try:
            request, response = self._parse(data)
        except Exception as error:
            self._network.fail(error)
        else:
            request.later.succeed(response)

    def _parse(self, data: bytes) -> tuple[_PendingRequest, ApiMessage]:
        size = int.from_bytes(data[:_SIZE_BYTES], "big")
        body = memoryview(data)[_SIZE_BYTES:]
        if size != len(body):
            raise Anomaly("bad-answer", f"a frame of {len(body)} bytes says it has {size}")
        if not self._pending:
            raise Anomaly("bad-answer", "a response without a request")
        request = self._pending.popleft()
        number, position = decode_response_header(body, request.api_key, request.version)
        if number != request.correlation_id:
            raise Anomaly("answer-order", f"{request.correlation_id} is due, {number} arrived")
        response = API_BY_KEY[request.api_key].response
        message, used = response.decode_prefix(body[position:], request.version)
        if position + used != len(body):
            raise Anomaly("bad-answer", f"{len(body) - position - used} bytes after the response")
        return request, message

    # -- the broker's end ---------------------------------------------------------------------

    def _arrived(self, frame: bytes) -> None:
        self._network.at_server(lambda: self._server_end.deliver(frame))

    def _closed_by_server(self, why: str, is_allowed: bool) -> None:
        # Without a response, a broker reports a failed produce by closing the connection.
        if not self._sent_without_response and not is_allowed:
            self._network.fail(Anomaly("unexpected-close", why))
        self._unregister()
        if self.is_open:
            self._close_client_end(why)

    def _close_server_end(self) -> None:
        self._up.cut(0)
        self._network.at_server(self._lose_server_end)

    def _lose_server_end(self) -> None:
        self._server_end.lose()
        self._unregister()

    def close_by_server(self) -> None:
        """Close the connection as the broker does."""
        self._close_server_end()
        if self.is_open:
            self._close_client_end("the broker stopped")

    def server_died(self) -> None:
        """End the connection after the broker's process has died."""
        self._up.cut(0)
        self._server_end.abandon()
        self._unregister()
        if self.is_open:
            self._close_client_end("the broker died")

    def _unregister(self) -> None:
        self.over_ms = min(self.over_ms, self._network.clock.monotonic_ms())
        if self in self._network.connections:
            self._network.connections.remove(self)
