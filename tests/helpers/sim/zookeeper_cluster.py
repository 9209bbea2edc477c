"""A cluster of brokers on ZooKeeper's double, in virtual time, over a simulated network.

    cluster = ZooKeeperCluster(3)
    cluster.create("t", partitions=1, replication_factor=3)
    assert cluster.produce("t", b"a") == 0
    cluster.kill(cluster.leader("t"))

Each broker has a disk of its own, and all share the time. `kill` and `restart` are power losses
without damage; the sessions of killed brokers expire after their timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plog.records.batch import iter_batches
from plog.records.reader import read_records
from plog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from plog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from plog.wire.schema import ApiMessage
from plogd.apis.close_connection import CloseConnection
from plogd.apis.dispatch import Dispatched
from plogd.connection_context import ConnectionContext
from plogd.metadata.store import PartitionValue
from plogd.replica.partition import Partition
from plogd.testing.mock_zookeeper import MockZooKeeper, MockZooKeeperClient
from plogd.testing.peer_network import PeerNetwork
from tests.helpers.sim.shared_time import SharedTime
from tests.helpers.sim.sim_broker import (
    Asked,
    fetch_request,
    produce_request,
)
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import SimPorts
from tests.helpers.sim.sim_time import LifeTimers, SimClock, SimTimers
from tests.helpers.sim.zookeeper_sim_broker import SESSION_TIMEOUT_MS as SESSION_TIMEOUT_MS
from tests.helpers.sim.zookeeper_sim_broker import ZooKeeperSimBroker


class ZooKeeperCluster(SharedTime):
    """Brokers 1 to `count`, with the racks in `racks`."""

    def __init__(
        self,
        count: int = 3,
        *,
        delay_ms: float = 1.0,
        racks: Mapping[int, str] | None = None,
        **settings: Any,
    ) -> None:
        self.timers = SimTimers(SimClock())
        self.network = PeerNetwork(self.timers.clock, self.timers, lambda *_: delay_ms)
        self.zookeeper = MockZooKeeper(self.timers.clock, self.timers)
        self.brokers: dict[int, ZooKeeperSimBroker] = {}
        self.files: dict[int, SimFiles] = {}
        self._lives: dict[int, LifeTimers] = {}
        self._settings = settings
        self._racks = racks or {}
        for node_id in range(1, count + 1):
            self.start(node_id)
        self.advance(1000)

    # -- brokers ------------------------------------------------------------------------------

    def start(self, node_id: int, files: SimFiles | None = None) -> None:
        """Start a broker, by default on its last disk, or on an empty one."""
        self.files[node_id] = files or self.files.get(node_id) or SimFiles(["/"])
        self._lives[node_id] = LifeTimers(self.timers)
        ports = SimPorts(node_id, timers=self._lives[node_id], files=self.files[node_id])
        broker = ZooKeeperSimBroker(
            self.zookeeper,
            ports=ports,
            network=self.network,
            node_id=node_id,
            broker_rack=self._racks.get(node_id),
            **self._settings,
        )
        self.brokers[node_id] = broker

        def dispatch(frame: memoryview, connection: ConnectionContext) -> Dispatched:
            if not broker.broker.is_ready:
                raise CloseConnection("the broker does not listen yet")
            return broker.dispatch(frame, connection)

        # Before it listens, the broker may connect to others.
        self.network.join(node_id, dispatch, turn=ports.turn)
        starting = broker.broker.start(host_name=f"b{node_id}")
        self.until(lambda: starting.done)
        starting.then(lambda _: None, _raise)

    def kill(self, node_id: int) -> None:
        """End a broker's process; its disk keeps what was written, and its session goes on."""
        broker = self.brokers.pop(node_id)
        self.network.leave(node_id)
        broker.client.kill()
        self._lives[node_id].end()
        self.files[node_id] = self.files[node_id].kill()

    def stop(self, node_id: int) -> None:
        """Stop a broker cleanly."""
        stopping = self.brokers[node_id].broker.stop()
        self.until(lambda: stopping.done)
        stopping.then(lambda _: None, _raise)
        self.network.leave(node_id)
        self._lives[node_id].end()
        del self.brokers[node_id]
        self.files[node_id] = self.files[node_id].kill()

    def client(self, node_id: int) -> MockZooKeeperClient:
        """Return a broker's connection to ZooKeeper."""
        return self.brokers[node_id].client

    def cut(self, one: int, other: int) -> None:
        """Hold back all frames between two brokers."""
        self.network.cut(one, other)
        self.network.cut(other, one)

    def heal(self, one: int, other: int) -> None:
        """Deliver all frames between two brokers again."""
        self.network.heal(one, other)
        self.network.heal(other, one)

    @property
    def has_controller(self) -> bool:
        """Whether a broker is the controller and has loaded all topics."""
        return any(sim.broker.controller.is_active for sim in self.brokers.values())

    @property
    def controller(self) -> int:
        """The broker that is the controller."""
        [found] = [one for one, sim in self.brokers.items() if sim.broker.controller.is_active]
        return found

    # -- topics -------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, replication_factor: int = 3) -> None:
        """Create a topic on the controller, and wait until all brokers show it."""
        self._create(
            CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=replication_factor
            )
        )

    def create_away_from_controller(self, name: str) -> tuple[int, int]:
        """Create a topic with a partition that other brokers than the controller lead and follow.

        Returns the leader and the first follower; the controller is the last replica. The
        connection between both can then be cut without cutting off the controller.
        """
        leader, follower, *_ = (one for one in sorted(self.brokers) if one != self.controller)
        assignment = CreatableReplicaAssignment(
            partition_index=0, broker_ids=[leader, follower, self.controller]
        )
        self._create(
            CreatableTopic(
                name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment]
            )
        )
        return leader, follower

    def _create(self, topic: CreatableTopic) -> None:
        name, request = topic.name, CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        asked = self.brokers[self.controller].begin(request, 7)
        self.until(lambda: asked.is_done)
        [result] = asked.response().topics
        assert result.error_code == 0, result.error_message
        self.until(lambda: all(b.broker.cache.topic(name) for b in self.brokers.values()))

    def state(self, name: str, number: int = 0) -> PartitionValue:
        """Return a partition's state in ZooKeeper, as the controller knows it."""
        store = self.brokers[self.controller].broker.store
        value = store.get(("partition", name, number))[0]
        assert isinstance(value, PartitionValue)
        return value

    def leader(self, name: str, number: int = 0) -> int:
        """Return the leader of a partition."""
        return self.state(name, number).leader

    def replica(self, node_id: int, name: str, number: int = 0) -> Partition:
        """Return a replica."""
        return self.brokers[node_id].broker.replica_manager.topics.partitions[name, number]

    # -- clients ------------------------------------------------------------------------------

    def begin_produce(
        self, name: str, *values: bytes, number: int = 0, to: int | None = None, **more: Any
    ) -> Asked:
        """Send a produce request to the leader, or to a broker."""
        node_id = self.leader(name, number) if to is None else to
        request = produce_request(name, *values, partition=number, **more)
        return self.brokers[node_id].begin(request, 9)

    def produce(self, name: str, *values: bytes, **more: Any) -> int:
        """Produce with acks=all; return the error code."""
        asked = self.begin_produce(name, *values, **more)
        self.until(lambda: asked.is_done)
        return error_of(asked)

    def values(self, name: str, number: int = 0) -> list[bytes]:
        """Return what a consumer reads from the leader."""
        request = fetch_request(name, partition=number)
        asked = self.brokers[self.leader(name, number)].begin(request, 11)
        self.until(lambda: asked.is_done)
        data = asked.response().responses[0].partitions[0].records
        return [
            record.value or b""
            for position, header in iter_batches(data)
            for record in read_records(data, position, header)
        ]

    def ask(self, node_id: int, message: ApiMessage, version: int) -> Any:
        """Return the response of a broker."""
        asked = self.brokers[node_id].begin(message, version)
        self.until(lambda: asked.is_done)
        return asked.response()

    def ask_controller(self, message: ApiMessage, version: int) -> Any:
        """Return the response of the controller."""
        return self.ask(self.controller, message, version)

    def commit(self, group: str, offset: int, name: str = "t") -> int:
        """Commit an offset through the group's coordinator; return the error code."""
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=group,
            topics=[OffsetCommitRequestTopic(name=name, partitions=[partition])],
        )
        response = self.ask(self.coordinator(group), request, 8)
        code: int = response.topics[0].partitions[0].error_code
        return code

    def committed(self, group: str, name: str = "t") -> int:
        """Return the committed offset of a group."""
        request = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0])],
        )

        def is_loaded() -> bool:
            nonlocal response
            response = self.ask(self.coordinator(group), request, 7)
            return not response.error_code

        response: Any = None
        for _ in range(100):
            if is_loaded():
                break
            self.advance(100)
        offset: int = response.topics[0].partitions[0].committed_offset
        return offset

    def coordinator(self, group: str) -> int:
        """Return the broker that coordinates a group, asking the first broker until one does."""
        request = FindCoordinatorRequest(coordinator_keys=[group], key_type=0)
        for _ in range(300):
            [found] = self.ask(min(self.brokers), request, 4).coordinators
            if not found.error_code:
                node_id: int = found.node_id
                return node_id
            self.advance(100)
        raise AssertionError(f"no coordinator: error {found.error_code}: {found.error_message}")

    # -- time ---------------------------------------------------------------------------------

    def until(self, condition: Callable[[], Any], within_ms: float = 60_000) -> None:
        """Let time pass until the condition holds."""
        end_ms = self.timers.clock.monotonic_ms() + within_ms
        self.settle()
        while not condition():
            due_ms = self.timers.next_due_ms
            assert due_ms is not None, "nothing is left to happen"
            assert due_ms <= end_ms, "the condition does not hold in time"
            self.timers.run_next()
            self.settle()


def error_of(asked: Asked) -> int:
    """Return the error code of a finished produce request."""
    code: int = asked.response().responses[0].partition_responses[0].error_code
    return code


def _raise(error: Exception) -> None:
    raise error
