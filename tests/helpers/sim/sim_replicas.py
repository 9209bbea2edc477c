"""The replicas of one partition on several simulated brokers; the test is the controller.

    replicas = SimReplicas(3)
    replicas.elect(1)
    replicas.produce(b"a")
    replicas.settle()
    assert replicas.high_watermarks == {1: 1, 2: 1, 3: 1}

All brokers share a clock, and each has a disk of its own. Followers fetch with real requests, which
`cut` drops.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from plog.errors import KafkaError
from plog.types import TopicPartition
from plog.wire.messages.fetch import FetchRequest, FetchResponse
from plogd.metadata.cache import PartitionState
from plogd.ports import Later
from plogd.replica.follower.follower_fetcher import FollowerFetcher
from plogd.replica.partition import Partition
from plogd.replica.partition_context import ChangedPartition
from tests.helpers.sim.sim_broker import Asked, SimBroker, create_topic, records_of
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import SimPorts
from tests.helpers.sim.sim_time import SimClock, SimTimers

KEY = TopicPartition("t", 0)
FETCH_VERSION = 17


@dataclass
class Proposal:
    """A leader's request to change the ISR."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    later: Later[PartitionState] = field(default_factory=Later)


@dataclass
class Settings:
    """The settings of the fetchers: Kafka's defaults."""

    replica_fetch_max_bytes: int = 1 << 20
    replica_fetch_response_max_bytes: int = 10 << 20
    replica_fetch_min_bytes: int = 1
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_backoff_ms: int = 1000


class SimLeader:
    """A follower's connection to its leader."""

    def __init__(self, replicas: SimReplicas, follower: int, broker_id: int) -> None:
        self._replicas = replicas
        self._follower = follower
        self.broker_id = broker_id
        self.pending: list[tuple[Asked, Later[Any]]] = []

    def fetch(self, request: FetchRequest) -> Later[FetchResponse]:
        """Send the request, unless the connection is cut."""
        later: Later[FetchResponse] = Later()
        if self.is_cut:
            later.fail(KafkaError("the connection is cut"))
        else:
            broker = self._replicas.brokers[self.broker_id]
            self.pending.append((broker.begin(request, FETCH_VERSION), later))
        return later

    def offsets(self, partition: Partition) -> Later[tuple[int, int]]:
        """Return the range of the leader's log."""
        log = self._replicas.partition(self.broker_id).log
        later: Later[tuple[int, int]] = Later()
        later.succeed((log.log_start_offset, log.log_end_offset))
        return later

    @property
    def is_cut(self) -> bool:
        return (self._follower, self.broker_id) in self._replicas.cuts

    def deliver(self) -> bool:
        """Deliver the responses that are ready; return whether there was any."""
        ready = [one for one in self.pending if one[0].is_done or self.is_cut]
        for asked, later in ready:
            self.pending.remove((asked, later))
            if self.is_cut:
                if asked.is_done:
                    asked.response()  # Closes its files.
                later.fail(KafkaError("the connection is cut"))
            else:
                later.succeed(asked.response())
        return bool(ready)


class SimReplicas:
    """A topic ``t`` with one partition, which has a replica on each of `count` brokers."""

    def __init__(self, count: int = 2, *, topic: dict[str, str] | None = None, **settings: Any):
        self.timers = SimTimers(SimClock())
        self.ids = tuple(range(1, count + 1))
        self.brokers: dict[int, SimBroker] = {}
        self.leaders: dict[int, list[SimLeader]] = {one: [] for one in self.ids}
        self.fetchers: dict[int, FollowerFetcher] = {}
        self.cuts: set[tuple[int, int]] = set()
        """Pairs of a follower and a leader that cannot communicate."""
        self.live = set(self.ids)
        self.proposals: list[Proposal] = []
        self.broker_epochs = dict.fromkeys(self.ids, 1)
        self.state = PartitionState(
            partition=0, leader=-1, leader_epoch=0, replicas=self.ids, isr=(), partition_epoch=0
        )
        for one in self.ids:
            self._start(one, SimFiles(["/"]), settings)
            create_topic(self.brokers[one], "t", **(topic or {}))
            self._adapt(one)
        topic_ids = {self.partition(one).topic_id for one in self.ids}
        assert len(topic_ids) == 1, "the brokers have the same seed"

    def _start(self, one: int, files: SimFiles, settings: dict[str, Any]) -> None:
        ports = SimPorts(timers=self.timers, files=files)
        self.brokers[one] = SimBroker(ports=ports, node_id=one, **settings).start()

    def _adapt(self, one: int) -> None:
        """Replace the partition of a single broker by one that knows the other brokers."""
        topics = self.brokers[one].broker.replica_manager.topics
        old = topics.partitions[KEY]
        topics.partitions[KEY] = Partition(
            log=old.log,
            sync_rounds=old.sync_rounds,
            context=replace(
                old.context,
                is_eligible=lambda other, epoch: (
                    other in self.live and epoch == self.broker_epochs[other]
                ),
                isr_changes=_Controller(self, one),
            ),
        )

    # -- state --------------------------------------------------------------------------------

    def partition(self, one: int) -> Partition:
        """Return the replica on broker `one`."""
        return self.brokers[one].broker.replica_manager.topics.partitions[KEY]

    @property
    def leader(self) -> Partition:
        """The leader's replica."""
        return self.partition(self.state.leader)

    @property
    def high_watermarks(self) -> dict[int, int]:
        """The high watermarks of the live replicas."""
        return {one: self.partition(one).high_watermark for one in sorted(self.live)}

    @property
    def end_offsets(self) -> dict[int, int]:
        """The log end offsets of the live replicas."""
        return {one: self.partition(one).log.log_end_offset for one in sorted(self.live)}

    def records(self, one: int) -> bytes:
        """Return all bytes of the log of broker `one`."""
        log = self.partition(one).log
        data = b""
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            region = log.read(offset, 1 << 30, end_offset=log.log_end_offset).region
            assert region is not None
            found = region.read()
            region.close()
            data += found
            offset = int.from_bytes(_last_batch(found)[:8], "big") + 1
            offset += int.from_bytes(_last_batch(found)[23:27], "big")
        return data

    # -- the controller -----------------------------------------------------------------------

    def elect(self, leader: int, isr: Iterable[int] | None = None) -> None:
        """Make `leader` the leader in a new epoch; by default, all live replicas are in the ISR."""
        members = tuple(sorted(self.live)) if isr is None else tuple(isr)
        # Above the epoch in which each of these brokers led the partition when it was created.
        self.state = replace(
            self.state,
            leader=leader,
            leader_epoch=self.state.leader_epoch + 1,
            isr=members,
            partition_epoch=self.state.partition_epoch + 1,
        )
        # The leader first; otherwise, the first fetches would fail.
        for one in sorted(self.live, key=lambda one: one != leader):
            self.send_state(one)

    def send_state(self, one: int) -> None:
        """Send the current state to broker `one`."""
        partition = self.partition(one)
        fetcher = self.fetchers.pop(one, None)
        if fetcher is not None:
            fetcher.close()
        if self.state.leader == one:
            partition.make_leader(self.state)
            return
        partition.make_follower(self.state)
        if self.state.leader in self.live:
            self.fetchers[one] = self._fetcher(one)
            self.fetchers[one].add(partition)

    def _fetcher(self, one: int) -> FollowerFetcher:
        broker = self.brokers[one]
        leader = SimLeader(self, one, self.state.leader)
        self.leaders[one].append(leader)
        manager = broker.broker.replica_manager
        return FollowerFetcher(
            leader,
            broker.ports.bundle(),
            broker_id=one,
            broker_epoch=lambda: self.broker_epochs[one],
            settings=Settings,
            fair_queue=broker.broker.fair_queue,
            listen=manager.listen,
            stop_listening=manager.stop_listening,
            on_bug=_raise,
        )

    def confirm(self) -> None:
        """Make the oldest proposed change of the ISR."""
        proposal = self.proposals.pop(0)
        assert proposal.partition_epoch == self.state.partition_epoch, "an outdated proposal"
        self.state = replace(
            self.state, isr=proposal.isr, partition_epoch=self.state.partition_epoch + 1
        )
        proposal.later.succeed(self.state)

    # -- what happens -------------------------------------------------------------------------

    def produce(self, *values: bytes, acks: int = -1, **batch: Any) -> int:
        """Append one batch to the leader; return its first offset."""
        broker = self.brokers[self.state.leader]
        view = memoryview(bytearray(records_of(values, **batch)))
        with broker.ports.turn:
            info = self.leader.append_records_to_leader(
                view, required_acks=acks, now_ms=broker.ports.clock.now_ms()
            )
        return info.first_offset

    def settle(self) -> None:
        """Run everything that needs no time, on all live brokers."""
        while True:
            for one in sorted(self.live):
                self.brokers[one].settle()
            if not any(leader.deliver() for ones in self.leaders.values() for leader in ones):
                return

    def advance(self, by_ms: float, step_ms: float = 100) -> None:
        """Let time pass on all brokers."""
        passed = 0.0
        while passed < by_ms:
            self.settle()
            self.brokers[min(self.live)].ports.advance(min(step_ms, by_ms - passed))
            passed += step_ms
        self.settle()

    def cut(self, follower: int, leader: int) -> None:
        """Break the connection from a follower to a leader."""
        self.cuts.add((follower, leader))

    def heal(self) -> None:
        """Repair all connections."""
        self.cuts.clear()


class _Controller:
    def __init__(self, replicas: SimReplicas, broker_id: int) -> None:
        self._replicas = replicas
        self._broker_id = broker_id

    def propose(self, partition: ChangedPartition, isr: tuple[int, ...]) -> Later[PartitionState]:
        proposal = Proposal(self._broker_id, isr, partition.leader_epoch, partition.partition_epoch)
        self._replicas.proposals.append(proposal)
        return proposal.later


def _last_batch(data: bytes) -> bytes:
    position = 0
    while True:
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if position + size >= len(data):
            return data[position:]
        position += size


def _raise(where: str, error: Exception) -> None:
    raise error
