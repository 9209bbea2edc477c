"""The port `Peers` over a `PeerNetwork`: brokers in one process that send requests to each other.

It behaves like the connections of a real broker: versions are negotiated, requests and responses
are encoded and decoded, and each lane has one connection. tests/helpers/peers checks both with the
same tests.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from plog.client.network.api_versions import Ranges, common_version, ranges_of
from plog.client.network.connection import api_versions_request
from plog.errors import KafkaError, RequestTimedOut, UnsupportedVersion
from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.messages import API_BY_KEY
from plog.wire.messages.api_versions import ApiVersionsResponse
from plog.wire.primitives import WireError
from plog.wire.schema import ApiMessage
from plogd.apis.own_requests import OwnRequests
from plogd.peers import REQUEST_TIMEOUT_MS, PeerRequest, PeerUnavailable, built_message
from plogd.ports import Later, Timer, Timers, failed
from plogd.testing.peer_network import Link, PeerNetwork

_SIZE_BYTES = 4
_BACKOFF_MS = 50.0
"""Time after a failed attempt to connect before the next one, as in the client library."""
_API_VERSIONS = 3


class _Asked:
    """A request without a response."""

    def __init__(self, request: PeerRequest, later: Later[Any]) -> None:
        self.request = request
        self.later = later
        self.timer: Timer | None = None

    def finish(self, outcome: ApiMessage | Exception) -> None:
        """Complete the request, unless it is complete."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.later.done:
            return
        if isinstance(outcome, Exception):
            self.later.fail(outcome)
        else:
            self.later.succeed(outcome)


class InMemoryPeers:
    """The `Peers` of a broker on the network.

    Args:
        own: handles the requests of the broker to itself.
        timers: the timers of the broker's process, which end with it.
    """

    def __init__(
        self, network: PeerNetwork, broker_id: int, own: OwnRequests, timers: Timers
    ) -> None:
        self._network = network
        self._broker_id = broker_id
        self._own = own
        self._timers = timers
        self._lanes: dict[tuple[int, str], _Lane] = {}
        self._is_closed = False

    def ask(
        self,
        broker_id: int,
        request: PeerRequest,
        lane: str,
        *,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> Later[Any]:
        """Send a request; see `Peers.ask`."""
        if self._is_closed:
            return failed(PeerUnavailable("this broker is stopping"))
        if broker_id == self._broker_id:
            return self._ask_own(request, timeout_ms)
        key = (broker_id, lane)
        if key not in self._lanes:
            self._lanes[key] = _Lane(self._network, self._timers, self._broker_id, broker_id)
        return self._lanes[key].ask(request, timeout_ms)

    def _ask_own(self, request: PeerRequest, timeout_ms: float) -> Later[Any]:
        try:
            message, version = _built(request, self._own.versions, self._broker_id)
        except (UnsupportedVersion, WireError) as error:
            return failed(error)
        return self._own.ask(message, version, timeout_ms)

    def close(self) -> None:
        """Close all connections; see `Peers.close`."""
        self._is_closed = True
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.close("this broker is stopping")


def _built(request: PeerRequest, ranges: Ranges, broker_id: int) -> tuple[ApiMessage, int]:
    """Return the message and its version. Raises UnsupportedVersion."""
    where = f"broker {broker_id}"
    return built_message(request, partial(common_version, ranges=ranges, address=where))


class _Lane:
    """The connection of one lane, and the requests that wait for it."""

    def __init__(self, network: PeerNetwork, timers: Timers, source: int, target: int) -> None:
        self._network = network
        self._timers = timers
        self._source, self._target = source, target
        self._link: Link | None = None
        self._opening: Later[Link] | None = None
        self._is_opening = False
        self._ranges: Ranges = {}
        self._waiting: deque[_Asked] = deque()
        self._next_try_ms = 0.0
        self._correlation_id = 0
        self._is_closed = False

    def ask(self, request: PeerRequest, timeout_ms: float) -> Later[Any]:
        later: Later[Any] = Later(lambda: asked.finish(PeerUnavailable("cancelled")))
        asked = _Asked(request, later)
        asked.timer = self._timers.call_later(timeout_ms, lambda: self._expired(asked))
        self._waiting.append(asked)
        if self._link is not None and self._link.is_open and not self._is_opening:
            self._send_waiting(self._link)
        elif not self._is_opening:
            self._is_opening = True
            wait_ms = max(0.0, self._next_try_ms - self._network.clock.monotonic_ms())
            self._timers.call_later(wait_ms, self._open)
        return later

    def _expired(self, asked: _Asked) -> None:
        asked.timer = None
        link = self._link
        was_sent = asked not in self._waiting
        if not was_sent:
            self._waiting.remove(asked)
        error = RequestTimedOut(f"broker {self._target} did not respond in time")
        asked.finish(error)
        # Responses arrive in order, so later ones would also be late.
        if was_sent and link is not None:
            link.close(f"closed the connection: {error}")

    # -- connecting ---------------------------------------------------------------------------

    def _open(self) -> None:
        if self._is_closed:
            return
        self._opening = self._network.connect(self._source, self._target)
        self._opening.then(self._negotiate, self._cannot_open)

    def _negotiate(self, link: Link) -> None:
        self._link, self._opening = link, None
        asked = self._exchange(link, api_versions_request(), _API_VERSIONS)
        asked.then(lambda versions: self._opened(link, versions), self._cannot_open)

    def _opened(self, link: Link, versions: ApiVersionsResponse) -> None:
        self._ranges = ranges_of(versions)
        self._is_opening = False
        self._send_waiting(link)

    def _cannot_open(self, error: Exception) -> None:
        self._link = self._opening = None
        self._is_opening = False
        self._next_try_ms = self._network.clock.monotonic_ms() + _BACKOFF_MS
        self._fail_waiting(str(error))

    def _fail_waiting(self, why: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            asked.finish(PeerUnavailable(why))

    def close(self, why: str) -> None:
        self._is_closed = True
        self._fail_waiting(why)
        if self._opening is not None:
            opening, self._opening = self._opening, None
            opening.cancel()
        if self._link is not None:
            self._link.close(why)

    # -- requests -----------------------------------------------------------------------------

    def _send_waiting(self, link: Link) -> None:
        while self._waiting:
            asked = self._waiting.popleft()
            if asked.later.done:  # Its caller has cancelled it.
                continue
            try:
                message, version = _built(asked.request, self._ranges, self._target)
                answer = self._exchange(link, message, version)
            except (KafkaError, WireError) as error:
                asked.finish(error)
                continue
            answer.then(asked.finish, asked.finish)

    def _exchange(self, link: Link, message: ApiMessage, version: int) -> Later[Any]:
        self._correlation_id += 1
        number, key = self._correlation_id, message.api_key
        header = RequestHeader(key, version, number, f"broker-{self._source}")
        frame = encode_request(header, message)[_SIZE_BYTES:]

        def decoded(data: bytes) -> ApiMessage:
            answered, position = decode_response_header(data, key, version)
            assert answered == number, "a response is out of order"
            response = API_BY_KEY[key].response
            answer, size = response.decode_prefix(memoryview(data)[position:], version)
            assert position + size == len(data), "bytes after the response"
            return answer

        return link.ask(frame).map(decoded)
