"""Faults between the machines of a cluster: pauses of processes, and faults of their network.

The faults of a single machine are those of a run with one broker (nemesis.py), and those of
ZooKeeper are in zookeeper_faults.py. All of them run concurrently.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld


class ClusterNemesis:
    """Injects faults as a coroutine, sequentially; every seed enables only some kinds."""

    def __init__(self, cluster: ClusterWorld) -> None:
        self.cluster = cluster
        self.chance = random.Random(f"cluster nemesis {cluster.seed}")
        faults: list[Callable[[], Awaitable[None]]] = [
            self.pause,
            self.cut_one_way,
            self.cut,
            self.cut_off,
            self.slow_peers,
            self.reset,
            self.lost_response,
            self.all_killed,
        ]
        self._faults = self.chance.sample(faults, self.chance.randint(2, len(faults)))
        self._pace_ms = self.chance.choice((200, 1_000, 3_000))

    async def run(self) -> None:
        """Inject one fault after another until the work is finished."""
        cluster = self.cluster
        while cluster.working:
            await cluster.sleep(self.chance.uniform(0.1, 2) * self._pace_ms)
            fault = self.chance.choice(self._faults)
            if cluster.working:
                cluster.trace(f"nemesis: {fault.__name__}")
                cluster.count(f"fault {fault.__name__}")
                await fault()

    def heal(self) -> None:
        """End all faults."""
        self.cluster.cuts.heal_all()
        self.cluster.max_peer_delay_ms = 2.0

    async def _while_broken(self) -> None:
        """Wait, often longer than a session with ZooKeeper and the lag of a replica may last."""
        session_ms = self.cluster.session_ms
        longest_ms = self.chance.choice((100, session_ms, 4 * session_ms))
        with self.cluster.trouble():
            await self.cluster.sleep(self.chance.uniform(10, longest_ms))

    def _some(self, count: int = 1) -> list[int]:
        ids = list(self.cluster.machines)
        return self.chance.sample(ids, min(count, len(ids)))

    async def pause(self) -> None:
        """Stop a process for a while, as by SIGSTOP."""
        machine = self.cluster.machines[self._some()[0]]
        machine.pause()
        await self._while_broken()
        machine.resume()

    async def cut_one_way(self) -> None:
        """Hold back the frames from one broker to another one."""
        await self._cut(lambda one, other: [(one, other)])

    async def cut(self) -> None:
        """Hold back the frames between two brokers."""
        await self._cut(lambda one, other: [(one, other), (other, one)])

    async def cut_off(self) -> None:
        """Hold back the frames between a broker and all others."""
        others = list(self.cluster.machines)
        await self._cut(
            lambda one, _: [
                pair for other in others if other != one for pair in ((one, other), (other, one))
            ]
        )

    async def _cut(self, pairs_of: Callable[[int, int], list[tuple[int, int]]]) -> None:
        some = self._some(2)
        if len(some) < 2:
            return
        pairs = pairs_of(*some)
        for pair in pairs:
            self.cluster.cuts.cut(*pair)
        await self._while_broken()
        for pair in pairs:
            self.cluster.cuts.heal(*pair)

    async def slow_peers(self) -> None:
        """Delay the frames between brokers."""
        self.cluster.max_peer_delay_ms = self.chance.choice((20.0, 200.0, 1_000.0))
        await self._while_broken()
        self.cluster.max_peer_delay_ms = 2.0

    async def reset(self) -> None:
        """Break the connections that one broker has opened to another one."""
        some = self._some(2)
        if len(some) == 2:
            self.cluster.peer_network.reset(*some)

    async def lost_response(self) -> None:
        """Break a connection when a request of a broker has been processed."""
        some = self._some(2)
        if len(some) == 2:
            self.cluster.peer_network.lose_response(*some)

    async def all_killed(self) -> None:
        """Kill all processes, or cut the power of all machines."""
        power_loss = self.chance.random() < 0.5
        for machine in self.cluster.machines.values():
            machine.service.end(power_loss=power_loss)
