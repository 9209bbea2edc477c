"""One broker of a `RunningCluster`: a `BrokerThread` whose connections a test can cut.

It connects to the cluster's `ZooKeeperThread`. It sends requests to other brokers over TCP, through
`CuttablePeers`. Cuts are kept when the broker restarts, because they belong to the network.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from plogd.cluster_broker import ClusterBroker
from plogd.config import BrokerConfig
from plogd.metadata.zookeeper.port import ZooKeeperConnection
from plogd.peers import Peers
from plogd.testing.broker_thread import BrokerThread
from plogd.testing.controlled_machine import ControlledMachine
from plogd.testing.cuttable_peers import CuttablePeers
from plogd.testing.mock_time import MovableReactor
from plogd.testing.running_broker import BrokerFailed
from plogd.testing.zookeeper_thread import ThreadedZooKeeperClient, ZooKeeperThread


class MemberThread(BrokerThread):
    """A broker in a thread, on the ZooKeeper of its cluster."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str], zookeeper: ZooKeeperThread
    ) -> None:
        super().__init__(directory, settings)
        self._zookeeper = zookeeper
        self._cut_ids: set[int] = set()
        self._is_cut_from_zookeeper = False
        self._machine: MemberMachine | None = None

    def cut_peer(self, broker_id: int) -> None:
        """Hold back requests to another broker and its responses."""
        self._cut_ids.add(broker_id)
        self._tell("cut_peer", broker_id)

    def heal_peer(self, broker_id: int) -> None:
        """Pass on requests to another broker and its responses again."""
        self._cut_ids.discard(broker_id)
        self._tell("heal_peer", broker_id)

    def cut_zookeeper(self) -> None:
        """Cut the connection to ZooKeeper."""
        self._is_cut_from_zookeeper = True
        if self._machine is not None and self._machine.zookeeper is not None:
            self._machine.zookeeper.cut()

    def heal_zookeeper(self) -> None:
        """Restore the connection to ZooKeeper."""
        self._is_cut_from_zookeeper = False
        if self._machine is not None and self._machine.zookeeper is not None:
            self._machine.zookeeper.heal()

    def begin(self, command: str, **arguments: Any) -> Future[Any]:
        """Start a command of controls.py. Raises BrokerFailed if the broker is not running."""
        return self._running().asked(command, arguments)

    def moved(self, seconds: float) -> None:
        """Note that the cluster's time was advanced, so that a restart keeps it."""
        self._moved_s += seconds

    def _tell(self, command: str, broker_id: int) -> None:
        # A broker that is not running learns it from its next machine.
        with contextlib.suppress(BrokerFailed):
            self._ask(command, broker_id=broker_id)

    def _make_machine(self, reactor: MovableReactor) -> ControlledMachine:
        self._machine = MemberMachine(
            reactor,
            self._zookeeper,
            cut_ids=self._cut_ids,
            is_cut_from_zookeeper=self._is_cut_from_zookeeper,
        )
        return self._machine


class MemberMachine(ControlledMachine):
    """The ports of one run of a member."""

    def __init__(
        self,
        reactor: MovableReactor,
        zookeeper: ZooKeeperThread,
        *,
        cut_ids: Collection[int],
        is_cut_from_zookeeper: bool,
    ) -> None:
        super().__init__(reactor, switch_interval_s=None)
        self.zookeeper: ThreadedZooKeeperClient | None = None
        self._zookeeper_thread = zookeeper
        self._cut_ids = frozenset(cut_ids)
        self._is_cut_from_zookeeper = is_cut_from_zookeeper

    def make_zookeeper(self, config: BrokerConfig) -> ZooKeeperConnection:
        """Return a client of the cluster's ZooKeeper."""
        timeout_ms = config.zookeeper_session_timeout_ms
        self.zookeeper = ThreadedZooKeeperClient(self._zookeeper_thread, self.reactor, timeout_ms)
        if self._is_cut_from_zookeeper:
            self.zookeeper.cut()
        return self.zookeeper

    def make_peers(self, broker: ClusterBroker) -> Peers:
        """Return connections that a test can cut."""
        self.peers = CuttablePeers(
            super().make_peers(broker), self.clock, self.timers, self._cut_ids
        )
        return self.peers

    def end(self) -> None:
        """End the connection to ZooKeeper, as the end of a process does."""
        if self.zookeeper is not None:
            self.zookeeper.end()
