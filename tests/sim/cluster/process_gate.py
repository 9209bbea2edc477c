"""Callbacks of other machines to a process, as calls on the timers of that process.

The doubles of ZooKeeper and of the network between brokers call back at any time, and directly. A
process that is paused must not notice this before it is resumed, and a process that has ended not
at all. Between two machines, no exception is passed on either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plog.zookeeper.operations import Operation, Result, SessionState, ZnodeStat
from plogd.metadata.zookeeper.port import Watch
from plogd.peers import REQUEST_TIMEOUT_MS, PeerRequest, Peers
from plogd.ports import Later
from plogd.testing.mock_zookeeper import MockZooKeeperClient
from tests.sim.cluster.machine_timers import MachineTimers


def _through(timers: MachineTimers, work: Later[Any]) -> Later[Any]:
    """Return the outcome of `work`, which arrives by a call on `timers`."""
    outcome: Later[Any] = Later(work.cancel)
    work.then(
        lambda value: timers.soon(lambda: outcome.succeed(value)),
        lambda error: timers.soon(lambda: outcome.fail(error)),
    )
    return outcome


class GatedZooKeeper:
    """A process's connection to ZooKeeper; implements the port of metadata/zookeeper/port.py."""

    def __init__(self, client: MockZooKeeperClient, timers: MachineTimers) -> None:
        self.client = client
        self._timers = timers

    @property
    def session_id(self) -> int:
        return self.client.session_id

    @property
    def session_timeout_ms(self) -> int:
        return self.client.session_timeout_ms

    @property
    def handshake_age_ms(self) -> float:
        return self.client.handshake_age_ms

    @property
    def problem(self) -> str:
        return self.client.problem

    def listen(self, on_state: Callable[[SessionState], None]) -> None:
        self.client.listen(lambda state: self._timers.soon(lambda: on_state(state)))

    def get(self, path: str, watch: Watch | None = None) -> Later[tuple[bytes, ZnodeStat]]:
        return _through(self._timers, self.client.get(path, self._watch(watch)))

    def exists(self, path: str, watch: Watch | None = None) -> Later[ZnodeStat | None]:
        return _through(self._timers, self.client.exists(path, self._watch(watch)))

    def children(self, path: str, watch: Watch | None = None) -> Later[list[str]]:
        return _through(self._timers, self.client.children(path, self._watch(watch)))

    def multi(self, operations: Sequence[Operation]) -> Later[list[Result]]:
        return _through(self._timers, self.client.multi(operations))

    def sync(self) -> Later[None]:
        return _through(self._timers, self.client.sync())

    def confirm(self) -> Later[None]:
        return _through(self._timers, self.client.confirm())

    def start(self) -> None:
        self.client.start()

    def close(self) -> Later[None]:
        return _through(self._timers, self.client.close())

    def _watch(self, watch: Watch | None) -> Watch | None:
        return None if watch is None else lambda: self._timers.soon(watch)


class GatedPeers:
    """A process's connections to other brokers; implements the port `Peers`."""

    def __init__(self, peers: Peers, timers: MachineTimers) -> None:
        self._peers = peers
        self._timers = timers

    def ask(
        self,
        broker_id: int,
        request: PeerRequest,
        lane: str,
        *,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> Later[Any]:
        asked = self._peers.ask(broker_id, request, lane, timeout_ms=timeout_ms)
        return _through(self._timers, asked)

    def close(self) -> None:
        self._peers.close()
