"""The network of a cluster: between clients and brokers, and between brokers.

Each machine has the network of a run with one broker for its clients. The brokers send requests to
each other over a `PeerNetwork`, which `Cuts` interrupts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from plogd.testing.peer_network import PeerNetwork
from tests.sim.network import Connection, ConnectionLost

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Machine


class ClusterNetwork:
    """The network between the clients and all brokers."""

    def __init__(self, machines: Mapping[int, Machine]) -> None:
        self._machines = machines

    def connect_to(self, broker_id: int | None, chance: random.Random) -> Connection:
        """Return a new connection to a broker, or to any. Raises ConnectionLost."""
        if broker_id is None:
            broker_id = chance.choice(list(self._machines))
        if broker_id not in self._machines:
            raise ConnectionLost(f"broker {broker_id} does not exist")
        return self._machines[broker_id].network.connect()


class Cuts:
    """Which frames between brokers are held back, and why."""

    def __init__(self, network: PeerNetwork, broker_ids: list[int]) -> None:
        self._network = network
        self._broker_ids = broker_ids
        self._cut: set[tuple[int, int]] = set()
        self._isolated: set[int] = set()

    def cut(self, source: int, target: int) -> None:
        """Hold back the frames from `source` to `target`."""
        self._cut.add((source, target))
        self._update(source, target)

    def heal(self, source: int, target: int) -> None:
        """End a cut."""
        self._cut.discard((source, target))
        self._update(source, target)

    def isolate(self, broker_id: int) -> None:
        """Hold back all frames from and to a broker whose process is paused."""
        self._isolated.add(broker_id)
        self._update_all(broker_id)

    def rejoin(self, broker_id: int) -> None:
        """End the isolation of a broker."""
        if broker_id in self._isolated:
            self._isolated.remove(broker_id)
            self._update_all(broker_id)

    def heal_all(self) -> None:
        """End all cuts; paused processes stay isolated."""
        for source, target in sorted(self._cut):
            self.heal(source, target)

    def _update_all(self, broker_id: int) -> None:
        for other in self._broker_ids:
            if other != broker_id:
                self._update(broker_id, other)
                self._update(other, broker_id)

    def _update(self, source: int, target: int) -> None:
        is_cut = (source, target) in self._cut or not self._isolated.isdisjoint((source, target))
        if is_cut and not self._network.is_cut(source, target):
            self._network.cut(source, target)
        elif not is_cut and self._network.is_cut(source, target):
            self._network.heal(source, target)
