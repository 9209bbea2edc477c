"""The port `Network` of the client library, over the simulated network of a cluster.

One `LibraryNetwork` is the process of one application. `end` kills it: its connections break, and
none of its code runs any more.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from plog.client.errors import ConnectionFailed
from plog.client.network.twisted_network import DeferredNetwork
from plog.wire.schema import ApiMessage
from plogd.ports import Later
from tests.helpers.client.deferred_clock import DeferredClock
from tests.helpers.client.sim_channel import SimChannel
from tests.helpers.sim.sim_time import LifeTimers
from tests.sim.network import Connection, ConnectionLost

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld

_MAX_CONNECT_S = 0.005

OnResponse = Callable[[Any], None]


class Watcher(Protocol):
    """What checks the requests of an application, and their responses."""

    def sending(
        self, request: ApiMessage, version: int, connection: Connection
    ) -> OnResponse | None:
        """Note a request that is about to be sent; return a function for its response."""
        ...


class LibraryNetwork(DeferredNetwork):
    """The clock and the connections of one application."""

    def __init__(self, cluster: ClusterWorld, chance: random.Random, watcher: Watcher) -> None:
        self.cluster = cluster
        self.chance = chance
        self.watcher = watcher
        self._timers = LifeTimers(cluster.timers, cluster.fail)
        self.deferred_clock = DeferredClock(self._timers, cluster.clock)
        super().__init__(self.deferred_clock)  # type: ignore[arg-type]
        self._channels: list[SimChannel] = []

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{host_of(node_id)}:9092" for node_id in self.cluster.machines)

    def wall_ms(self) -> int:
        return self.cluster.clock.now_ms()

    def random(self) -> float:
        return self.chance.random()

    async def connect(
        self, host: str, port: int, security: object, *, timeout_s: float
    ) -> SimChannel:
        await self.sleep(self.chance.random() * _MAX_CONNECT_S)
        [broker_id] = [one for one in self.cluster.machines if host_of(one) == host]
        try:
            connection = self.cluster.network.connect_to(broker_id, self.chance)
        except ConnectionLost as error:
            raise ConnectionFailed(f"cannot connect to {host}:{port}: {error}") from error
        channel = _WatchedChannel(self, connection, f"{host}:{port}")
        self._channels = [one for one in self._channels if one.is_open]
        self._channels.append(channel)
        return channel

    def drop_one(self) -> None:
        """Break a connection, if any is open."""
        is_open = [channel for channel in self._channels if channel.is_open]
        if is_open:
            self.chance.choice(is_open).drop()

    def end(self) -> None:
        """Kill the application's process."""
        self._timers.end()
        for channel in self._channels:
            channel.drop()


class _WatchedChannel(SimChannel):
    """A channel whose requests and responses are reported to the watcher."""

    def __init__(self, network: LibraryNetwork, connection: Connection, address: str) -> None:
        super().__init__(connection, address, network.deferred_clock)
        self._network = network

    def _request(self, request: ApiMessage, version: int, *, expects_answer: bool) -> Later[Any]:
        self._check_open()
        on_response = self._network.watcher.sending(request, version, self._connection)
        later = super()._request(request, version, expects_answer=expects_answer)
        return later if on_response is None else later.map(self._noting(on_response))

    def _noting(self, on_response: OnResponse) -> Callable[[Any], Any]:
        def note(response: Any) -> Any:
            # Not in the engine, which handles exceptions of a request itself.
            try:
                on_response(response)
            except Exception as error:
                self._network.cluster.fail(error)
            return response

        return note


def host_of(node_id: int) -> str:
    """Return the host of a broker, as in its listener."""
    return f"b{node_id}"
