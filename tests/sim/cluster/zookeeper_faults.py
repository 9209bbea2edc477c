"""Faults of ZooKeeper, as the brokers of a cluster see them.

The double of ZooKeeper (plogd/testing/mock_zookeeper.py) implements the faults; this module chooses
them. A seed may have none.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from plog.zookeeper.operations import Delete
from plogd.metadata.zookeeper.paths import CONTROLLER
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld
    from tests.sim.cluster.machine import Machine

_QUORUM_LOST_MS = 30_000.0


class ZooKeeperFaults:
    """Injects faults as a coroutine, sequentially; every seed enables only some kinds."""

    def __init__(self, cluster: ClusterWorld) -> None:
        self.cluster = cluster
        self.chance = random.Random(f"zookeeper {cluster.seed}")
        faults: list[Callable[[], Awaitable[None]]] = [
            self.server_behind,
            self.connection_cut,
            self.connections_lost,
            self.requests_lost,
            self.session_expired,
            self.quorum_lost,
            self.controller_removed,
            self.controller_killed,
        ]
        count = self.chance.choice((0, 2, len(faults)))
        self._faults = self.chance.sample(faults, count)
        self._pace_ms = self.chance.choice((500, 2_000, 6_000))
        self._quorum_losses = 1
        self._losing = 0.0
        """The share of requests with which the connection is lost."""
        self._kills_controller = False
        self._machines: dict[MockZooKeeperClient, Machine] = {}
        self._held: MockZooKeeperClient | None = None
        self._cut: MockZooKeeperClient | None = None
        cluster.zookeeper.on_request = self._on_request

    def connected(self, machine: Machine, client: MockZooKeeperClient) -> None:
        """Note the connection of a process."""
        self._machines[client] = machine

    async def run(self) -> None:
        """Inject one fault after another until the work is finished."""
        cluster = self.cluster
        while cluster.working and self._faults:
            await cluster.sleep(self.chance.uniform(0.1, 2) * self._pace_ms)
            fault = self.chance.choice(self._faults)
            if cluster.working:
                cluster.trace(f"zookeeper: {fault.__name__}")
                cluster.count(f"fault {fault.__name__}")
                await fault()

    def heal(self) -> None:
        """End all faults."""
        self._losing, self._kills_controller = 0.0, False
        if self._held is not None:
            self._held.catch_up()
        if self._cut is not None:
            self._restore(self._cut)
        self._held = self._cut = None
        if not self.cluster.zookeeper.has_quorum:
            self.cluster.zookeeper.restore_quorum()

    def _restore(self, client: MockZooKeeperClient) -> None:
        """Restore the network of a client, unless its process has ended or is paused."""
        machine = self._machines[client]
        process = machine.process
        if process is None or process.zookeeper is None or process.zookeeper.client is not client:
            return
        if not process.timers.is_paused:  # Otherwise, it is restored when the process continues.
            client.restore()

    def _client(self) -> MockZooKeeperClient | None:
        """Return the connection of a running process."""
        processes = [machine.process for machine in self.cluster.machines.values()]
        clients = [
            process.zookeeper.client
            for process in processes
            if process is not None and process.zookeeper is not None
        ]
        return self.chance.choice(clients) if clients else None

    async def _while_broken(self) -> None:
        session_ms = self.cluster.session_ms
        longest_ms = self.chance.choice((50, session_ms, 3 * session_ms))
        with self.cluster.trouble():
            await self.cluster.sleep(self.chance.uniform(10, longest_ms))

    # -- faults -------------------------------------------------------------------------------

    async def server_behind(self) -> None:
        """Let the server of one broker lag behind: its reads are stale, and its watches late."""
        held = self._held = self._client()
        if held is not None:
            held.hold()
            await self._while_broken()
            held.catch_up()
            self._held = None

    async def connection_cut(self) -> None:
        """Cut the network between a broker and ZooKeeper; its session often expires."""
        client = self._cut = self._client()
        if client is not None:
            client.cut()
            await self._while_broken()
            self._restore(client)
            self._cut = None

    async def connections_lost(self) -> None:
        """Break the connection of a broker, which connects to another server at once."""
        client = self._client()
        if client is not None:
            client.lose_connection()

    async def requests_lost(self) -> None:
        """Lose connections with some requests, before or after a write is applied."""
        self._losing = self.chance.choice((0.05, 0.3))
        await self._while_broken()
        self._losing = 0.0

    async def session_expired(self) -> None:
        """End a session of which the client believes that it is alive."""
        client = self._client()
        if client is not None and client.session_id:
            self.cluster.zookeeper.expire(client.session_id)

    async def quorum_lost(self) -> None:
        """Stop ZooKeeper for a while, once in a run for 30 s."""
        duration_ms = self.chance.uniform(10, 3 * self.cluster.session_ms)
        if self._quorum_losses and self.chance.random() < 0.3:
            self._quorum_losses -= 1
            duration_ms = _QUORUM_LOST_MS
        with self.cluster.trouble():
            self.cluster.zookeeper.lose_quorum()
            await self.cluster.sleep(duration_ms)
            self.cluster.zookeeper.restore_quorum()

    async def controller_removed(self) -> None:
        """Remove ``/controller``, as an operator does to force an election."""
        zookeeper = self.cluster.zookeeper
        if zookeeper.stat(CONTROLLER) is not None:
            zookeeper.write(Delete(path=CONTROLLER))

    async def controller_killed(self) -> None:
        """Kill the controller with one of its next writes, before or after it is applied."""
        self._kills_controller = True
        await self._while_broken()
        self._kills_controller = False

    def _on_request(self, client: MockZooKeeperClient, request: Request) -> Fault:
        chance = self.chance
        is_write = self._kills_controller and request.kind == "multi"
        if is_write and self._is_controller(client) and chance.random() < 0.5:
            self._kills_controller = False
            return self._kill(client)
        if not self._losing or chance.random() >= self._losing:
            return Fault.NONE
        return chance.choice((Fault.LOSE_BEFORE, Fault.LOSE_AFTER))

    def _is_controller(self, client: MockZooKeeperClient) -> bool:
        stat = self.cluster.zookeeper.stat(CONTROLLER)
        return stat is not None and stat.ephemeral_owner == client.session_id

    def _kill(self, client: MockZooKeeperClient) -> Fault:
        machine = self._machines[client]
        process = machine.process
        # At once, so that the process does not learn the outcome.
        self.cluster.timers.call_later(0, lambda: self._end(machine, process))
        return self.chance.choice((Fault.LOSE_BEFORE, Fault.LOSE_AFTER))

    def _end(self, machine: Machine, process: object) -> None:
        if machine.process is process:
            machine.service.end(power_loss=self.chance.random() < 0.5)
