"""Three simulated brokers, each with its `Peers`, in virtual time on one network."""

from __future__ import annotations

from typing import Any

from plog.wire.header import decode_request_header
from plog.wire.messages import API_BY_KEY
from plog.wire.schema import ApiMessage
from plogd.apis.api_table import HANDLERS, Row
from plogd.apis.dispatch import Dispatched
from plogd.apis.own_requests import OwnRequests
from plogd.connection_context import ConnectionContext
from plogd.peers import PeerRequest, Peers
from plogd.testing.in_memory_peers import InMemoryPeers
from plogd.testing.peer_network import PeerNetwork
from tests.helpers.sim.sim_broker import SimBroker
from tests.helpers.sim.sim_ports import SimPorts
from tests.helpers.sim.sim_time import LifeTimers, SimClock, SimTimers

BROKERS = (1, 2, 3)
LANE = "control"


class Reply:
    """The outcome of a request, when it is known; `number` is its position among the outcomes."""

    def __init__(self, site: PeerSite, later: Any) -> None:
        self.later = later
        self.value: Any = None
        self.error: Exception | None = None
        self.number: int | None = None
        self._site = site
        later.then(self._succeeded, self._failed)

    @property
    def is_done(self) -> bool:
        """Whether the outcome is known."""
        return self.number is not None

    def _succeeded(self, value: Any) -> None:
        self.value = value
        self._ended()

    def _failed(self, error: Exception) -> None:
        self.error = error
        self._ended()

    def _ended(self) -> None:
        assert self.number is None, "two outcomes"
        self.number = len(self._site.replies)
        self._site.replies.append(self)


class PeerSite:
    """Brokers 1 to 3. Subclasses decide which implementation of `Peers` they use."""

    def __init__(self, rows: tuple[Row, ...] = HANDLERS) -> None:
        self.timers = SimTimers(SimClock())
        self.delay_ms = 1.0
        self.network = PeerNetwork(
            self.timers.clock, self.timers, lambda source, target: self.delay_ms
        )
        self.brokers: dict[int, SimBroker] = {}
        self.peers: dict[int, Peers] = {}
        self.arrived: dict[int, list[ApiMessage]] = {each: [] for each in BROKERS}
        """The requests that each broker has received from others, in order."""
        self.replies: list[Reply] = []
        self._rows = rows
        self._lives: dict[int, LifeTimers] = {}
        for broker_id in BROKERS:
            self.start(broker_id)

    def start(self, broker_id: int) -> None:
        """Start a broker with an empty disk, and add it to the network."""
        self._lives[broker_id] = LifeTimers(self.timers)
        ports = SimPorts(broker_id, timers=self._lives[broker_id])
        broker = SimBroker(ports=ports, node_id=broker_id, rows=self._rows).start()
        self.brokers[broker_id] = broker

        def dispatch(frame: memoryview, connection: ConnectionContext) -> Dispatched:
            header, position = decode_request_header(frame)
            request = API_BY_KEY[header.api_key].request
            self.arrived[broker_id].append(request.decode(frame[position:], header.api_version))
            return broker.dispatch(frame, connection)

        self.network.join(broker_id, dispatch, turn=ports.turn)
        self.peers[broker_id] = self.make_peers(broker_id, broker)

    def make_peers(self, broker_id: int, broker: SimBroker) -> Peers:
        """Return the `Peers` of a broker."""
        raise NotImplementedError

    def kill(self, broker_id: int) -> None:
        """End a broker's process."""
        self.network.leave(broker_id)
        self._lives[broker_id].end()
        del self.brokers[broker_id]

    def ask(
        self, target: int, request: PeerRequest, lane: str = LANE, *, source: int = 1, **more: Any
    ) -> Reply:
        """Start a request; run all work that needs no time."""
        reply = Reply(self, self.peers[source].ask(target, request, lane, **more))
        self.settle()
        return reply

    def answer(self, target: int, request: PeerRequest, lane: str = LANE, **more: Any) -> Any:
        """Return the response to a request, after the time that it takes."""
        reply = self.ask(target, request, lane, **more)
        self.advance(100)
        if reply.error is not None:
            raise reply.error
        assert reply.is_done
        return reply.value

    def settle(self) -> None:
        """Run all work that needs no time."""
        while self.timers.run_due() or any(
            [broker.ports.jobs.run_all() for broker in self.brokers.values()]
        ):
            pass
        for broker in self.brokers.values():
            assert broker.bugs == []

    def advance(self, by_ms: float) -> None:
        """Let time pass."""
        until_ms = self.timers.clock.monotonic_ms() + by_ms
        self.settle()
        while (due_ms := self.timers.next_due_ms) is not None and due_ms <= until_ms:
            self.timers.run_next()
            self.settle()
        self.timers.clock.advance_to(max(until_ms, self.timers.clock.monotonic_ms()))


class InMemorySite(PeerSite):
    """A site with the test double."""

    def make_peers(self, broker_id: int, broker: SimBroker) -> Peers:
        own = OwnRequests(broker.broker, self._rows)
        return InMemoryPeers(self.network, broker_id, own, broker.ports.timers)
