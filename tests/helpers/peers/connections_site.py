"""The `Peers` of a real broker, whose connections are those of a simulated `PeerNetwork`."""

from __future__ import annotations

from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from plog.client.errors import ConnectionFailed
from plog.client.network.ports import Cancelled
from plog.client.network.twisted_channel import give_up_after
from plog.client.network.twisted_network import DeferredNetwork
from plog.errors import RequestTimedOut
from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.schema import ApiMessage
from plogd.apis.own_requests import OwnRequests
from plogd.net.peer_connections import PeerConnections
from plogd.peers import Peers
from plogd.testing.peer_network import Link, PeerNetwork
from tests.helpers.client.deferred_clock import DeferredClock
from tests.helpers.peers.peer_site import PeerSite
from tests.helpers.sim.sim_broker import SimBroker

R = TypeVar("R", bound=ApiMessage)

_SIZE_BYTES = 4


class ConnectionsSite(PeerSite):
    """A site with the connections of a real broker."""

    def __init__(self, *args: Any) -> None:
        self.ports = {broker_id: 9090 + broker_id for broker_id in (1, 2, 3)}
        """The port of each broker's inter-broker listener, as others know it."""
        self.opened: list[tuple[str, int]] = []
        """The addresses of the connections that were opened."""
        super().__init__(*args)

    def make_peers(self, broker_id: int, broker: SimBroker) -> Peers:
        return PeerConnections(
            broker_id,
            OwnRequests(broker.broker, self._rows),
            self._address_of,
            LinkNetwork(self, self.network, broker_id, broker),
            broker.ports.bundle(),
            on_bug=lambda where, error: broker.bugs.append((where, error)),
        )

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        return (f"b{broker_id}", self.ports[broker_id]) if broker_id in self.ports else None


class LinkNetwork(DeferredNetwork):
    """A `Network` whose connections are links; host ``b2`` is broker 2."""

    def __init__(
        self, site: ConnectionsSite, network: PeerNetwork, source: int, broker: SimBroker
    ) -> None:
        self.deferred_clock = DeferredClock(broker.ports.timers, broker.ports.clock)
        super().__init__(self.deferred_clock)  # type: ignore[arg-type]
        self._site = site
        self._network = network
        self._source = source

    def random(self) -> float:
        return 0.5  # No jitter.

    async def connect(
        self, host: str, port: int, security: object, *, timeout_s: float
    ) -> LinkChannel:
        opened: Deferred[Link] = Deferred()

        def fail(error: Exception) -> None:
            if not opened.called:
                opened.errback(ConnectionFailed(str(error)))

        attempt = self._network.connect(self._source, int(host[1:]))
        attempt.then(opened.callback, fail)
        timer = self.deferred_clock.callLater(timeout_s, attempt.cancel)
        try:
            link = await opened
        finally:
            if timer.active():
                timer.cancel()
        self._site.opened.append((host, port))
        return LinkChannel(self, link, f"{host}:{port}")


class LinkChannel:
    """A `Channel` over a link, with the rules of plog/client/network/twisted_channel.py."""

    def __init__(self, network: LinkNetwork, link: Link, address: str) -> None:
        self.address = address
        self._clock = network.deferred_clock
        self._link = link
        self._number = 0

    @property
    def is_open(self) -> bool:
        return self._link.is_open

    @property
    def in_flight(self) -> int:
        return self._link.in_flight

    def ask(
        self,
        request: ApiMessage,
        response: type[R],
        version: int,
        *,
        timeout_s: float,
        wait_s: float | None = None,
    ) -> Deferred[R]:
        if not self.is_open:
            raise ConnectionFailed(f"the connection to {self.address} is closed")
        self._number += 1
        header = RequestHeader(request.api_key, version, self._number, "test")
        frame = encode_request(header, request)[_SIZE_BYTES:]
        answer: Deferred[R] = Deferred(lambda d: d.errback(Failure(Cancelled())))

        def decode(data: bytes) -> R:
            number, position = decode_response_header(data, header.api_key, version)
            assert number == header.correlation_id, "a response is out of order"
            return response.decode(memoryview(data)[position:], version)

        def end(outcome: R | Exception) -> None:
            if timer.active():
                timer.cancel()
            if not answer.called:
                answer.callback(outcome)  # type: ignore[arg-type]  # An exception fails it.

        def time_out() -> None:
            end(RequestTimedOut(f"{self.address} did not respond in time"))
            self._link.close("closed the connection: a response is late")

        timer = self._clock.callLater(timeout_s, time_out)
        later = self._link.ask(frame).map(decode)
        later.then(end, lambda error: end(ConnectionFailed(str(error))))
        if wait_s is not None:
            give_up_after(self._clock, answer, wait_s, request, self.address)
        return answer

    def send(self, request: ApiMessage, version: int, *, timeout_s: float) -> Deferred[None]:
        raise NotImplementedError("brokers expect a response to each request")

    def close(self) -> None:
        self._link.close("the connection was closed")
