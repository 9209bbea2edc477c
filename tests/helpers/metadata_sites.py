"""Each metadata store with all that it needs, behind one interface, for tests that both must pass.

`EmbeddedSite` has its log on a simulated disk, and `ZooKeeperSite` has a `MockZooKeeper` in virtual
time.
"""

from __future__ import annotations

from plog.types import ZERO_UUID
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue
from plogd.log.log_manager import LogManager
from plogd.metadata.embedded_store import METADATA_PARTITION, METADATA_TOPIC_ID, EmbeddedStore
from plogd.metadata.store import (
    ABSENT,
    BrokerRegistration,
    Change,
    Endpoint,
    Key,
    MetadataStore,
    PartitionValue,
    TopicValue,
)
from plogd.metadata.zookeeper.store import ZooKeeperStore
from plogd.ports import Later
from plogd.testing.mock_zookeeper import Fault, MockZooKeeper, MockZooKeeperClient, Request
from plogd.topic_config import TopicConfig
from tests.helpers.sim.sim_ports import SimPorts, T, outcome, settled

SESSION_TIMEOUT_MS = 6000
_WAIT_MS = 60_000

LOST = [Fault.LOSE_BEFORE, Fault.LOSE_AFTER]
"""The faults of a lost connection, after which the outcome of a write is unknown."""


class EmbeddedSite:
    """An `EmbeddedStore`."""

    def __init__(self) -> None:
        self.ports = SimPorts()
        self.store: MetadataStore = self.start()

    def start(self) -> EmbeddedStore:
        """Open the store on the existing files."""
        ports = self.ports.bundle()
        queue = FairQueue(ports.timers)
        manager = LogManager(BrokerConfig(), ["/d"], ports, fair_queue=queue)
        settled(self.ports, manager.open_directories())
        config = TopicConfig(cleanup_policy=(), flush_messages=1)
        loading = manager.load_metadata_log(METADATA_PARTITION, METADATA_TOPIC_ID, config)
        log = settled(self.ports, loading)
        store = EmbeddedStore(log, clock=ports.clock, turn=ports.turn, fair_queue=queue)
        store.open(ports.files)
        return store

    def restart(self) -> None:
        """Kill the process, and start again on its files."""
        self.ports = SimPorts(files=self.ports.files.kill())
        self.store = self.start()

    def settle(self, later: Later[T]) -> T:
        """Return the outcome of `later`."""
        return settled(self.ports, later)


class ZooKeeperSite:
    """A `ZooKeeperStore`, on an ensemble that other stores can share."""

    def __init__(self, broker_id: int = 1, other: ZooKeeperSite | None = None) -> None:
        # Brokers share the time, but are machines of their own.
        self.ports = SimPorts(timers=None if other is None else other.ports.timers)
        self.zookeeper = (
            MockZooKeeper(self.ports.clock, self.ports.timers) if other is None else other.zookeeper
        )
        self.broker_id = broker_id
        self.client, self.store = self.start()

    def start(self) -> tuple[MockZooKeeperClient, ZooKeeperStore]:
        """Connect and open the store."""
        client = self.zookeeper.connect(session_timeout_ms=SESSION_TIMEOUT_MS)
        store = ZooKeeperStore(client, broker_id=self.broker_id, ports=self.ports.bundle())
        self.settle(store.open())
        return client, store

    def restart(self) -> None:
        """Kill the process, and start again."""
        self.client.kill()
        self.client, self.store = self.start()

    def settle(self, later: Later[T]) -> T:
        """Return the outcome of `later`, advancing time as far as it takes."""
        timers = self.ports.timers
        limit_ms = self.ports.clock.monotonic_ms() + _WAIT_MS
        while not later.done and (due_ms := timers.next_due_ms) is not None and due_ms < limit_ms:
            timers.run_next()
        return outcome(later)

    def run_for(self, duration_ms: float) -> None:
        """Let time pass."""
        self.ports.advance(duration_ms)


Site = EmbeddedSite | ZooKeeperSite


def registration(broker_id: int = 1) -> BrokerRegistration:
    """Return the registration of a broker with two listeners."""
    return BrokerRegistration(
        broker_id=broker_id,
        incarnation_id=ZERO_UUID,
        endpoints=(
            Endpoint(name="INTERNAL", host="i", port=9092, security_protocol="PLAINTEXT"),
            Endpoint(name="SSL", host="::1", port=9093, security_protocol="SSL"),
        ),
        rack="r1",
    )


def topic_value(topic_id: bytes = b"t" * 16, partitions: int = 1) -> TopicValue:
    """Return a topic whose partitions have one replica, on broker 1."""
    return TopicValue(topic_id=topic_id, assignments={n: (1,) for n in range(partitions)})


def partition_value(leader_epoch: int = 0, partition_epoch: int = 0) -> PartitionValue:
    """Return the state of a partition led by broker 1."""
    return PartitionValue(
        leader=1, leader_epoch=leader_epoch, isr=(1,), partition_epoch=partition_epoch
    )


def topic_changes(name: str, topic_id: bytes = b"t" * 16, partitions: int = 1) -> list[Change]:
    """Return the changes that create a topic."""
    topic = topic_value(topic_id, partitions)
    return [
        Change(key=("topic", name), value=topic, expected=ABSENT),
        *(
            Change(key=("partition", name, n), value=partition_value(), expected=ABSENT)
            for n in range(partitions)
        ),
    ]


def config_change(value: str, expected: int = ABSENT) -> Change:
    """Return a change to the settings of the topic t."""
    return Change(key=("config", "topic", "t"), value={"a": value}, expected=expected)


def election_change(site: ZooKeeperSite, epoch: int) -> Change:
    """Return a change to the leader epoch of partition 0 of the topic t."""
    key: Key = ("partition", "t", 0)
    value = partition_value(leader_epoch=epoch, partition_epoch=epoch)
    return Change(key=key, value=value, expected=site.store.get(key)[1])


def fault_once(zookeeper: MockZooKeeper, fault: Fault, kind: str = "multi") -> list[Request]:
    """Let the next request of this kind fail; return the requests that follow, as they come."""
    requests: list[Request] = []

    def decide(client: MockZooKeeperClient, request: Request) -> Fault:
        if request.kind != kind:
            return Fault.NONE
        requests.append(request)
        return fault if len(requests) == 1 else Fault.NONE

    zookeeper.on_request = decide
    return requests


def controller_of_topic(site: ZooKeeperSite) -> int:
    """Create the topic t as the controller; return the term."""
    term = site.settle(site.store.campaign())
    site.settle(site.store.write_atomic(topic_changes("t"), term))
    return term
