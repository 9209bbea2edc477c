"""A process of a broker that belongs to a cluster: the real `ClusterBroker` on a `Machine`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from plogd.apis.close_connection import CloseConnection
from plogd.apis.dispatch import Dispatched
from plogd.apis.own_requests import OwnRequests
from plogd.cluster_broker import ClusterBroker
from plogd.config import BrokerConfig
from plogd.connection_context import ConnectionContext
from plogd.metadata.zookeeper.zookeeper_metadata import ZooKeeperMetadata
from plogd.peers import Peers
from plogd.ports import Later, Ports
from plogd.replica.cluster.cluster_replicas import ClusterReplicas
from plogd.replica.partition import Partition
from plogd.testing.in_memory_peers import InMemoryPeers
from tests.sim.checker import Anomaly
from tests.sim.cluster.machine_timers import MachineTimers
from tests.sim.cluster.process_gate import GatedPeers, GatedZooKeeper
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Machine

_EXPECTED_STOPS = ("all log directories have failed", "is registered with this id")
"""Reasons for which a broker may end itself."""


class _WatchedBroker(ClusterBroker):
    """A broker that reports the partitions that it leads in a new leader epoch."""

    on_elected: Callable[[Partition], None]

    def _make_cluster_replicas(self) -> ClusterReplicas:
        replicas = super()._make_cluster_replicas()
        elected = replicas.roles.on_elected

        def on_elected(partition: Partition) -> None:
            self.on_elected(partition)
            elected(partition)

        replicas.roles.on_elected = on_elected
        return replicas


class ClusterProcess(Process):
    """One life of the broker on `machine`."""

    broker: ClusterBroker
    timers: MachineTimers

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine = machine
        self.zookeeper: GatedZooKeeper | None = None
        """The connection to ZooKeeper; None until the broker connects."""
        self._has_joined = False
        super().__init__(machine, number)

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self.is_serving and self.broker.controller.is_active

    def _make_timers(self) -> MachineTimers:
        machine = self.machine
        return MachineTimers(
            machine.timers, machine.clock, on_error=machine.fail, on_call=machine.will_run
        )

    def _make_broker(self, ports: Ports, **parts: Any) -> ClusterBroker:
        broker = _WatchedBroker(
            self.machine.config,
            ports,
            make_peers=self._make_peers,
            make_metadata=partial(ZooKeeperMetadata, self._connect),
            **parts,
        )
        broker.on_elected = lambda partition: self.machine.cluster.elected(
            self.machine, partition, self.number
        )
        return broker

    def _make_peers(self, broker: ClusterBroker) -> Peers:
        machine = self.machine
        own = OwnRequests(broker)
        return GatedPeers(
            InMemoryPeers(machine.cluster.peer_network, machine.node_id, own, self.timers),
            self.timers,
        )

    def _connect(self, config: BrokerConfig) -> GatedZooKeeper:
        machine = self.machine
        client = machine.cluster.zookeeper.connect(session_timeout_ms=machine.cluster.session_ms)
        self.zookeeper = GatedZooKeeper(client, self.timers)
        machine.zookeeper_connected(client)
        return self.zookeeper

    def _start(self) -> None:
        # Before it listens, the broker may connect to others.
        self._has_joined = True
        self.machine.cluster.peer_network.join(
            self.machine.node_id, self._dispatch_peer, turn=self.turn
        )
        super()._start()

    def stop(self) -> None:
        self.timers.soon(self._begin_stop)

    def _begin_stop(self) -> None:
        # A paused process may have been asked twice.
        if self.is_serving:
            # As service.py does, before the broker hands over its partitions.
            for other in self.machine.cluster.machines:
                self.machine.cluster.peer_network.reset(other, self.machine.node_id)
            super().stop()

    def _begin_start(self) -> Later[None]:
        return self.broker.start(host_name=f"b{self.machine.node_id}")

    def _dispatch_peer(self, frame: memoryview, connection: ConnectionContext) -> Dispatched:
        """Dispatch a request of another broker."""
        if not (self.timers.is_alive and self.broker.is_ready):
            raise CloseConnection("the broker does not listen")
        self.machine.will_run()
        return self.dispatch(frame, connection)

    def _must_stop(self, why: str) -> None:
        self.machine.trace(f"the broker ends: {why}")
        if not any(expected in why for expected in _EXPECTED_STOPS):
            self.machine.fail(Anomaly("unexpected-stop", f"broker {self.machine.node_id}: {why}"))
        super()._must_stop(why)

    def end(self) -> None:
        super().end()
        if self.zookeeper is not None:
            self.zookeeper.client.kill()
        # Not in this call, because other brokers notice it.
        network, node_id = self.machine.cluster.peer_network, self.machine.node_id
        if self._has_joined:
            self.machine.timers.call_later(0, lambda: network.leave(node_id))
