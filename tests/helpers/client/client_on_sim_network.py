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
from plog.client.network.ports import Cancelled
from plog.client.network.twisted_channel import give_up_after
from plog.client.network.twisted_network import DeferredNetwork
from plog.errors import RequestTimedOut
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.schema import ApiMessage
from plogd.apis.dispatch import Dispatched
from plogd.connection_context import ConnectionContext
from plogd.net.request_queue import RequestSlots
from plogd.ports import Later
from tests.helpers.sim.sim_broker import SimBroker
from tests.helpers.sim.sim_ports import SimPorts
from tests.helpers.sim.sim_time import LifeTimers, SimClock, SimTimer, SimTimers
from tests.sim.network import Connection, ConnectionLost, Network

T = TypeVar("T")
R = TypeVar("R", bound=ApiMessage)

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
        super().__init__(DeferredClock(self.timers, self._ports))  # type: ignore[arg-type]
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
    ) -> SimChannel:
        if self.swallows:
            await self.sleep(timeout_s)
            raise ConnectionFailed(f"cannot connect to {host}:{port}: timed out")
        await self.sleep(self._wire.delay_ms() / 1000)
        if self.refuses or (host, port) != (HOST, PORT):
            raise ConnectionFailed(f"cannot connect to {host}:{port}: refused")
        try:
            channel = SimChannel(self, self._wire.connect())
        except ConnectionLost as error:
            raise ConnectionFailed(f"cannot connect to {host}:{port}: {error}") from error
        self.channels.append(channel)
        return channel

    # -- time ---------------------------------------------------------------------------------

    @property
    def deferred_clock(self) -> Any:
        """The clock, with Twisted's interface."""
        return self._clock

    def call_later(self, delay_s: float, function: Callable[[], None]) -> _Call:
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


class _Call:
    """A delayed call, with Twisted's interface."""

    def __init__(self, timer: SimTimer, due_s: float) -> None:
        self._timer = timer
        self._due_s = due_s

    def getTime(self) -> float:
        return self._due_s

    def active(self) -> bool:
        return self._timer.function is not None

    def cancel(self) -> None:
        self._timer.cancel()


class DeferredClock:
    """The part of a reactor's clock that a `DeferredNetwork` uses, on simulated timers."""

    def __init__(self, timers: SimTimers, ports: SimPorts) -> None:
        self._timers = timers
        self._clock = ports.clock

    def seconds(self) -> float:
        return self._clock.monotonic_ms() / 1000

    def callLater(self, delay: float, function: Callable[..., object], *args: Any) -> _Call:
        timer: SimTimer

        def run() -> None:
            timer.cancel()
            function(*args)

        timer = self._timers.call_later(delay * 1000, run)
        return _Call(timer, self.seconds() + delay)


class SimChannel:
    """A `Channel` over a connection of tests/sim."""

    address = f"{HOST}:{PORT}"

    def __init__(self, sim: SimNetwork, connection: Connection) -> None:
        self._sim = sim
        self._connection = connection
        self._waiting: list[Deferred[Any]] = []

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def ask(
        self,
        request: ApiMessage,
        response: type[R],
        version: int,
        *,
        timeout_s: float,
        wait_s: float | None = None,
    ) -> Deferred[R]:
        later, fault = self._request(request, version, expects_answer=True)
        answer: Deferred[R] = Deferred(lambda d: d.errback(Failure(Cancelled())))
        self._waiting.append(answer)
        timer = self._sim.call_later(timeout_s, lambda: self._timed_out(answer))

        def end(finish: Callable[[Any], None], outcome: object) -> None:
            if answer in self._waiting:
                self._waiting.remove(answer)
            if timer.active():
                timer.cancel()
            if not answer.called:
                finish(outcome)

        def answered(message: Any) -> None:
            if fault == "lose":
                end(answer.errback, Failure(ConnectionFailed("the response was lost")))
                self.drop()
            else:
                end(answer.callback, message)

        later.then(answered, lambda error: end(answer.errback, Failure(_lost(error))))
        if wait_s is not None:
            give_up_after(self._sim.deferred_clock, answer, wait_s, request, self.address)
        return answer

    def send(self, request: ApiMessage, version: int, *, timeout_s: float) -> Deferred[None]:
        gone: Deferred[None] = Deferred(lambda d: d.errback(Failure(Cancelled())))

        def leave() -> None:
            try:
                later, _ = self._request(request, version, expects_answer=False)
            except ConnectionFailed as error:
                gone.errback(error)
                return
            later.then(lambda _: None, lambda _: None)
            gone.callback(None)

        if not self.is_open:
            raise ConnectionFailed(f"the connection to {self.address} is closed")
        if self._sim.stuck is None:
            leave()
        else:
            self._sim.stuck.append(leave)
        return gone

    def _request(
        self, request: ApiMessage, version: int, *, expects_answer: bool
    ) -> tuple[Later[Any], str | None]:
        if not self.is_open:
            raise ConnectionFailed(f"the connection to {self.address} is closed")
        sim = self._sim
        sim.requests.append(request)
        if sim.deaf:
            return Later(), None
        fault = sim.on_request(request) if sim.on_request is not None else None
        if fault == "drop":
            self.drop()
        return self._connection.request(request, version, expects_answer=expects_answer), fault

    def _timed_out(self, answer: Deferred[Any]) -> None:
        self._waiting.remove(answer)
        if not answer.called:
            answer.errback(Failure(RequestTimedOut(f"{self.address} did not respond in time")))
        self.drop()

    def drop(self) -> None:
        """Break the connection."""
        self._connection.drop()

    def close(self) -> None:
        self._connection.drop()


def _lost(error: Exception) -> Exception:
    return ConnectionFailed(str(error)) if isinstance(error, ConnectionLost) else error


class _Server:
    """The broker, as the simulated network sees a process."""

    def __init__(self, broker: SimBroker) -> None:
        self.turn = broker.ports.turn
        self.slots = RequestSlots(broker.config.queued_max_requests)
        self._broker = broker

    def dispatch(self, frame: memoryview, context: ConnectionContext) -> Dispatched:
        return self._broker.dispatch(frame, context)
