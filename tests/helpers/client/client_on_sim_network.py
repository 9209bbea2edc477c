"""The client's engine against a complete broker in the same process, in virtual time, with faults.

    sim = SimNetwork()
    cluster = Cluster(sim, ClientSettings(bootstrap_servers=sim.bootstrap_servers))
    metadata = sim.run(cluster.refresh(all_topics=True))

Connections are those of tests/sim/network.py: real frames, a real request queue, delays chosen by
the seed.
`run` lets time pass until a coroutine has ended. Faults: `drop_all`, `refuses`, `restart`, and
`on_request`, which is called with each request before it is sent and may decide its fate.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from plog.client.errors import ConnectionFailed
from plog.client.network.twisted_network import DeferredNetwork
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.schema import ApiMessage
from plogd.apis.dispatch import Dispatched
from plogd.connection_context import ConnectionContext
from plogd.net.request_queue import RequestSlots
from plogd.ports import Later
from tests.helpers.client.deferred_clock import DeferredCall, DeferredClock
from tests.helpers.client.sim_channel import SimChannel
from tests.helpers.sim.sim_broker import SimBroker
from tests.helpers.sim.sim_ports import SimPorts
from tests.helpers.sim.sim_time import LifeTimers, SimClock, SimTimers
from tests.sim.network import Connection, ConnectionLost, Network

T = TypeVar("T")

HOST, PORT = "127.0.0.1", 9092
"""The address of every simulated broker."""
_MAX_RUN_MS = 3_600_000.0


class SimNetwork(DeferredNetwork):
    """A network with one broker. `seed` decides delays and jitter, `settings` are SimBroker's."""

    bootstrap_servers = (f"{HOST}:{PORT}",)

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.timers = SimTimers(SimClock())
        self._life = LifeTimers(self.timers)
        self._ports = SimPorts(seed, timers=self._life)
        super().__init__(DeferredClock(self.timers, self._ports.clock))  # type: ignore[arg-type]
        self.broker = SimBroker(ports=self._ports, **settings).start()
        self._settings = settings
        self.chance = random.Random(seed)
        self.failures: list[Exception] = []
        """Errors of the broker or in its responses: tests expect none."""
        self.channels: list[SimChannel] = []
        self.refuses = False
        """Whether new connections are refused."""
        self.swallows = False
        """Whether new connections get no response, as behind a firewall that drops packets."""
        self.deaf = False
        """Whether requests are lost in transit while connections stay open."""
        self.stuck: list[Callable[[], None]] | None = None
        """If not None, requests without a response are kept here instead of being sent."""
        self.on_request: Callable[[ApiMessage], str | None] | None = None
        """Called with each request: None forwards it, "drop" breaks the connection before it is
        sent, "lose" breaks the connection when its response arrives."""
        self.requests: list[ApiMessage] = []
        """All requests sent, in order."""
        self._wire = Network(
            self._ports.clock, self.timers, random.Random(seed + 1), self.failures.append
        )
        self._wire.server = _Server(self.broker)

    # -- the port -----------------------------------------------------------------------------

    def wall_ms(self) -> int:
        return self.broker.ports.clock.now_ms()

    def random(self) -> float:
        return self.chance.random()

    async def connect(
        self, host: str, port: int, security: object, *, timeout_s: float
    ) -> FaultyChannel:
        if self.swallows:
            await self.sleep(timeout_s)
            raise ConnectionFailed(f"cannot connect to {host}:{port}: timed out")
        await self.sleep(self._wire.delay_ms() / 1000)
        if self.refuses or (host, port) != (HOST, PORT):
            raise ConnectionFailed(f"cannot connect to {host}:{port}: refused")
        try:
            channel = FaultyChannel(self, self._wire.connect())
        except ConnectionLost as error:
            raise ConnectionFailed(f"cannot connect to {host}:{port}: {error}") from error
        self.channels.append(channel)
        return channel

    # -- time ---------------------------------------------------------------------------------

    @property
    def deferred_clock(self) -> Any:
        """The clock, with Twisted's interface."""
        return self._clock

    def call_later(self, delay_s: float, function: Callable[[], None]) -> DeferredCall:
        """Call `function` after `delay_s`."""
        return self._clock.callLater(delay_s, function)  # type: ignore[return-value]

    def run(self, coroutine: Coroutine[Any, Any, T], within_ms: float = _MAX_RUN_MS) -> T:
        """Return the result of `coroutine`, letting as much time pass as it needs."""
        outcomes: list[Any] = []
        Deferred.fromCoroutine(coroutine).addBoth(outcomes.append)
        self.run_until(lambda: bool(outcomes), within_ms)
        if isinstance(outcomes[0], Failure):
            outcomes[0].raiseException()
        result: T = outcomes[0]
        return result

    def run_until(self, condition: Callable[[], bool], within_ms: float = _MAX_RUN_MS) -> None:
        """Let time pass until `condition` holds."""
        until_ms = self.broker.ports.clock.monotonic_ms() + within_ms
        self.settle()
        while not condition():
            due_ms = self.timers.next_due_ms
            assert due_ms is not None and due_ms <= until_ms, "it waits forever"
            self.timers.run_next()
            self.settle()

    def advance(self, by_ms: float) -> None:
        """Let `by_ms` pass."""
        self.broker.ports.advance(by_ms)
        self.settle()

    def settle(self) -> None:
        """Run all work that needs no time. Raises errors of the broker."""
        self.broker.ports.settle()
        if self.failures:
            raise self.failures[0]
        if self.broker.bugs:
            raise self.broker.bugs[0][1]

    def create_soon(self, topic: str, partitions: int = 1) -> None:
        """Start to create a topic, as another client would."""
        created = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
        self.broker.begin(CreateTopicsRequest(topics=[created]), 7)

    # -- faults -------------------------------------------------------------------------------

    def drop_all(self) -> None:
        """Break every connection; frames in transit may still arrive at the broker."""
        for channel in self.channels:
            channel.drop()

    def unstick(self) -> None:
        """Send the requests that were kept back."""
        stuck, self.stuck = self.stuck or [], None
        for leave in stuck:
            leave()

    def restart(self) -> None:
        """Kill the broker as by SIGKILL; another one starts immediately on the same disk."""
        self._wire.server_died()
        self._life.end()
        self._life = LifeTimers(self.timers)
        self._ports = self._ports.next_life(self._ports.files.kill(), timers=self._life)
        self.broker = SimBroker(ports=self._ports, **self._settings).start()
        self._wire.server = _Server(self.broker)


class FaultyChannel(SimChannel):
    """A channel with the faults of a `SimNetwork`."""

    def __init__(self, sim: SimNetwork, connection: Connection) -> None:
        super().__init__(connection, f"{HOST}:{PORT}", sim.deferred_clock)
        self._sim = sim

    def _write(self, leave: Callable[[], None]) -> None:
        if self._sim.stuck is None:
            leave()
        else:
            self._sim.stuck.append(leave)

    def _request(self, request: ApiMessage, version: int, *, expects_answer: bool) -> Later[Any]:
        self._check_open()
        sim = self._sim
        sim.requests.append(request)
        if sim.deaf:
            return Later()
        fault = sim.on_request(request) if sim.on_request is not None else None
        if fault == "drop":
            self.drop()
        later = super()._request(request, version, expects_answer=expects_answer)
        return self._lost(later) if fault == "lose" else later

    def _lost(self, later: Later[Any]) -> Later[Any]:
        """Break the connection when the response arrives."""
        lost: Later[Any] = Later()

        def answered(_: object) -> None:
            lost.fail(ConnectionLost("the response was lost"))
            self.drop()

        later.then(answered, lost.fail)
        return lost


class _Server:
    """The broker, as the simulated network sees a process."""

    def __init__(self, broker: SimBroker) -> None:
        self.turn = broker.ports.turn
        self.slots = RequestSlots(broker.config.queued_max_requests)
        self._broker = broker

    def dispatch(self, frame: memoryview, context: ConnectionContext) -> Dispatched:
        return self._broker.dispatch(frame, context)
