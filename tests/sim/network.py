"""The network between scripted clients and one broker: frames with delays, drops and lost answers.

A `Connection` is both ends of one TCP connection. Frames of one direction arrive in the order they
were sent, those of different connections in any order. A dropped connection ends at the client at
once; the broker still gets some of what is under way, and hears of the end later: so an answer is
lost, or a request arrives after the client has sent it again elsewhere.

What the broker does with the frames is in server_end.py.
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
from tests.helpers.sim_ports import SimClock, SimTimers
from tests.sim.checker import Anomaly
from tests.sim.server_end import Lane, Server, ServerEnd

_SIZE_BYTES = 4
CLIENT_ID = "sim"


class ConnectionLost(Exception):
    """The connection is gone, or there is none to be had: what became of a request is unknown."""


@dataclass(slots=True)
class _Asked:
    """A request whose answer the client awaits."""

    api_key: int
    version: int
    correlation_id: int
    later: Later[ApiMessage]


class Network:
    """All connections; `fail` hears of anomalies, `delays_ms` bounds how long a frame travels."""

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
        """Whether an unexpected error of the broker is none that counts."""
        self.max_delay_ms = 5.0
        self.server: Server | None = None
        self.connections: list[Connection] = []
        self._ports = 40_000

    def connect(self) -> Connection:
        """A new connection. Raises ConnectionLost while nobody listens."""
        if self.server is None:
            raise ConnectionLost("connection refused")
        self._ports += 1
        connection = Connection(self, self.server, self._ports)
        self.connections.append(connection)
        return connection

    def server_died(self) -> None:
        """The broker's process has ended: no connection outlives it."""
        self.server = None
        for connection in list(self.connections):
            connection.server_died()

    def server_stops(self) -> None:
        """The broker's process closes every connection and takes no new one."""
        self.server = None
        for connection in list(self.connections):
            connection.close_by_server()

    def delay_ms(self) -> float:
        """How long the next frame travels."""
        return self.chance.random() ** 2 * self.max_delay_ms


class Connection:
    """Both ends of one connection; clients call `request` and `drop`."""

    def __init__(self, network: Network, server: Server, port: int) -> None:
        self._network = network
        self._asked: deque[_Asked] = deque()
        self._asked_in_vain = False
        self._next_correlation_id = 0
        self._up = Lane(network, self._arrived)
        self._server_end = ServerEnd(network, server, port, self._answered, self._closed_by_server)
        self.is_open = True
        self.over_ms = math.inf
        """Since when nothing of it can arrive at the broker any more."""

    # -- the client's end ---------------------------------------------------------------------

    def request(
        self, message: ApiMessage, version: int, *, expects_answer: bool = True
    ) -> Later[ApiMessage]:
        """Send a request; its answer. Fails with ConnectionLost."""
        if not self.is_open:
            return failed(ConnectionLost("the connection is closed"))
        self._next_correlation_id += 1
        number = self._next_correlation_id
        header = RequestHeader(message.api_key, version, number, CLIENT_ID)
        later: Later[ApiMessage] = Later()
        if expects_answer:
            self._asked.append(_Asked(message.api_key, version, number, later))
        else:
            self._asked_in_vain = True
            later.fail(ConnectionLost("no answer was asked for"))
        frame = encode_request(header, message)
        self._up.send(lambda: frame[_SIZE_BYTES:])
        return later

    def drop(self) -> None:
        """The connection breaks: unanswered requests may or may not take effect, even later."""
        if not self.is_open:
            return
        network = self._network
        self._up.cut(network.chance.random())
        self._client_hears("the connection was dropped")
        delay_ms = network.delay_ms() * network.chance.choice((0, 1, 20))
        network.timers.call_later(delay_ms, self._server_hears)

    def _client_hears(self, why: str) -> None:
        self.is_open = False
        asked, self._asked = self._asked, deque()
        for request in asked:
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

    def _parse(self, data: bytes) -> tuple[_Asked, ApiMessage]:
        size = int.from_bytes(data[:_SIZE_BYTES], "big")
        body = memoryview(data)[_SIZE_BYTES:]
        if size != len(body):
            raise Anomaly("bad-answer", f"a frame of {len(body)} bytes says it has {size}")
        if not self._asked:
            raise Anomaly("bad-answer", "an answer nobody asked for")
        request = self._asked.popleft()
        number, position = decode_response_header(body, request.api_key, request.version)
        if number != request.correlation_id:
            raise Anomaly("answer-order", f"{request.correlation_id} is due, {number} came")
        response = API_BY_KEY[request.api_key].response
        message, used = response.decode_prefix(body[position:], request.version)
        if position + used != len(body):
            raise Anomaly("bad-answer", f"{len(body) - position - used} bytes behind the answer")
        return request, message

    # -- the broker's end ---------------------------------------------------------------------

    def _arrived(self, frame: bytes) -> None:
        self._server_end.deliver(frame)

    def _closed_by_server(self, why: str, is_allowed: bool) -> None:
        # Where no answer is asked for, closing is how the broker says that a produce has failed.
        if not self._asked_in_vain and not is_allowed:
            self._network.fail(Anomaly("unexpected-close", why))
        self._forget()
        if self.is_open:
            self._client_hears(why)

    def _server_hears(self) -> None:
        self._up.cut(0)
        self._server_end.lose()
        self._forget()

    def close_by_server(self) -> None:
        """The process at the other end closes it."""
        self._server_hears()
        if self.is_open:
            self._client_hears("the broker stops")

    def server_died(self) -> None:
        """The process at the other end is gone."""
        self._up.cut(0)
        self._server_end.abandon()
        self._forget()
        if self.is_open:
            self._client_hears("the broker died")

    def _forget(self) -> None:
        self.over_ms = min(self.over_ms, self._network.clock.monotonic_ms())
        if self in self._network.connections:
            self._network.connections.remove(self)
