"""A `SimBroker` whose metadata is in a `MockZooKeeper`, in the same virtual time."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from plog.wire.schema import ApiMessage
from plogd.apis.own_requests import OwnRequests
from plogd.cluster_broker import ClusterBroker
from plogd.config import BrokerConfig
from plogd.metadata.zookeeper.zookeeper_metadata import ZooKeeperMetadata
from plogd.peers import Peers
from plogd.ports import Later
from plogd.testing.in_memory_peers import InMemoryPeers
from plogd.testing.mock_zookeeper import MockZooKeeper, MockZooKeeperClient
from plogd.testing.peer_network import PeerNetwork
from tests.helpers.sim.sim_broker import SimBroker
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import SimPorts, T, outcome
from tests.helpers.sim.sim_time import SimTimers

SESSION_TIMEOUT_MS = 6000
ANSWER_MAX_MS = 200.0
"""Longer than any request takes while ZooKeeper answers."""
_WAIT_MS = 120_000.0


class ZooKeeperSimBroker(SimBroker):
    """A broker of the cluster in `zookeeper`; time passes while it starts and answers."""

    def __init__(
        self,
        zookeeper: MockZooKeeper | None = None,
        *,
        ports: SimPorts | None = None,
        files: SimFiles | None = None,
        network: PeerNetwork | None = None,
        **settings: Any,
    ) -> None:
        # Brokers of a cluster share the time, but are machines of their own.
        if ports is None:
            timers = None if zookeeper is None else cast(SimTimers, zookeeper.timers)
            ports = SimPorts(timers=timers, files=files)
        self.zookeeper = zookeeper or MockZooKeeper(ports.clock, ports.timers)
        self._client: MockZooKeeperClient | None = None
        self.stop_reasons: list[str] = []
        self.network = network or PeerNetwork(ports.clock, ports.timers)
        super().__init__(
            ports=ports,
            make_metadata=partial(ZooKeeperMetadata, self._connect),
            plog_metadata_store="zookeeper",
            zookeeper_connect="zk:2181/kafka",
            **settings,
        )
        self.broker.on_must_stop = self.stop_reasons.append

    def _make_broker(self, **parts: Any) -> ClusterBroker:
        return ClusterBroker(self.config, self.ports.bundle(), make_peers=self._peers, **parts)

    def _peers(self, broker: ClusterBroker) -> Peers:
        node_id = broker.config.node_id
        return InMemoryPeers(self.network, node_id, OwnRequests(broker), self.ports.timers)

    def _connect(self, config: BrokerConfig) -> MockZooKeeperClient:
        self._client = self.zookeeper.connect(session_timeout_ms=SESSION_TIMEOUT_MS)
        return self._client

    @property
    def client(self) -> MockZooKeeperClient:
        """The broker's connection."""
        assert self._client is not None, "the broker has not started"
        return self._client

    def start(self) -> ZooKeeperSimBroker:
        """Start, and run until ready. Raises the error that prevents it."""
        self.settled(self.broker.start(host_name="this.machine"))
        return self

    def stop(self) -> None:
        """Stop cleanly."""
        self.settled(self.broker.stop())

    def kill(self) -> SimFiles:
        """Let the process die; return the disk. Its session lasts until its timeout."""
        if self._client is not None:
            self._client.kill()
        return self.files.kill()

    def restart(self, files: SimFiles | None = None, **settings: Any) -> ZooKeeperSimBroker:
        """Return the next broker, over `files` or the same disk, once it has started."""
        return self.next_life(files, **settings).start()

    def next_life(self, files: SimFiles | None = None, **settings: Any) -> ZooKeeperSimBroker:
        """Return the next broker without starting it."""
        self.client.kill()
        files = files or self.kill()
        ports = self.ports.next_life(files, timers=self.ports.timers)
        more = {name: value for name, value in self._settings.items() if name not in _OWN}
        return ZooKeeperSimBroker(self.zookeeper, ports=ports, **(more | settings))

    def settled(self, later: Later[T]) -> T:
        """Return the outcome of `later`, letting time pass."""
        until_ms = self.ports.clock.monotonic_ms() + _WAIT_MS
        self.ports.settle()
        while not later.done and self.ports.clock.monotonic_ms() < until_ms:
            self.ports.advance(1)
        return outcome(later)

    def ask(self, message: ApiMessage, version: int, **more: Any) -> Any:
        """Return the response to a request, letting time pass until it arrives."""
        asked = self.begin(message, version, **more)
        self.ports.settle()
        until_ms = self.ports.clock.monotonic_ms() + ANSWER_MAX_MS
        while not asked.is_done and self.ports.clock.monotonic_ms() < until_ms:
            self.ports.advance(1)
        return asked.response()


_OWN = ("plog_metadata_store", "zookeeper_connect")
