"""Rules for the replicas of partitions, checked with access to the state of the brokers.

- One process leads a partition in each leader epoch, and its high watermark never falls in it.
- All records below any high watermark are durable on every member of the in-sync replicas that
  ZooKeeper stores, also on those whose process is not running.

monitor.py checks the offsets of each replica, and final_replicas.py compares the replicas at the
end of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from plog.types import TopicPartition, Uuid
from plogd.log.log import Log
from plogd.metadata.store import PartitionValue, TopicValue
from plogd.metadata.zookeeper.paths import path_of
from plogd.metadata.zookeeper.topic_znodes import decode_partition, decode_topic
from plogd.replica.partition import Partition
from plogd.testing.mock_zookeeper import MockZooKeeper
from tests.sim.checker import Anomaly

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_process import ClusterProcess
    from tests.sim.cluster.machine import Machine

Key = tuple[Uuid, int]
"""Topic id and partition number: a topic may be deleted, and its name used again."""


class Leader(NamedTuple):
    """A process that leads a partition: the broker, and the number of its life."""

    node_id: int
    life: int


@dataclass(slots=True)
class _Term:
    """What is known of a leader epoch."""

    leader: Leader
    high_watermark: int = 0


class StoredPartitions:
    """The states of partitions in ZooKeeper, decoded once for each version."""

    def __init__(self, zookeeper: MockZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._decoded: dict[str, tuple[int, PartitionValue | TopicValue]] = {}

    @property
    def zxid(self) -> int:
        """The number of the last change of any znode."""
        return self._zookeeper.znodes.zxid

    def isr(self, name: TopicPartition, topic_id: Uuid) -> tuple[int, ...]:
        """Return the in-sync replicas; none if the topic is being deleted, or was recreated."""
        topic = self._value(path_of(("topic", name.topic)), lambda data, _: decode_topic(data))
        if not isinstance(topic, TopicValue) or topic.topic_id != topic_id:
            return ()
        if self._zookeeper.stat(path_of(("delete_topic", name.topic))) is not None:
            return ()
        state = self.state(name)
        return () if state is None else state.isr

    def state(self, name: TopicPartition) -> PartitionValue | None:
        """Return the state of a partition, or None."""
        state = self._value(path_of(("partition", *name)), decode_partition)
        return state if isinstance(state, PartitionValue) else None

    def replicas(self, name: TopicPartition) -> tuple[int, ...]:
        """Return the assigned replicas; none if the topic does not exist."""
        topic = self._value(path_of(("topic", name.topic)), lambda data, _: decode_topic(data))
        return topic.assignments.get(name.partition, ()) if isinstance(topic, TopicValue) else ()

    def topics(self) -> Mapping[str, TopicValue]:
        """Return all topics by name."""
        names = self._zookeeper.names("/brokers/topics")
        found = {}
        for name in names:
            topic = self._value(path_of(("topic", name)), lambda data, _: decode_topic(data))
            assert isinstance(topic, TopicValue)
            found[name] = topic
        return found

    def _value(self, path, decode):  # type: ignore[no-untyped-def]
        stat = self._zookeeper.stat(path)
        if stat is None:
            return None
        known = self._decoded.get(path)
        if known is None or known[0] != stat.mzxid:
            data = self._zookeeper.data(path)
            known = self._decoded[path] = stat.mzxid, decode(data, stat.version)
        return known[1]


class ReplicaChecker:
    """Remembers leaders, high watermarks and durable ends of the whole run."""

    def __init__(self, stored: StoredPartitions) -> None:
        self._stored = stored
        self._terms: dict[tuple[Key, int], _Term] = {}
        self._committed: dict[Key, int] = {}
        """The largest high watermark of each partition on any broker."""
        self._durable: dict[Key, dict[int, int]] = {}
        """The durable end of each replica when it was last checked."""
        self._names: dict[Key, TopicPartition] = {}
        self._seen: dict[Log, tuple[int, int, int, int]] = {}
        self._zxid = -1

    def elected(self, machine: Machine, partition: Partition, life: int) -> None:
        """Note that a process leads a partition in a new leader epoch. Raises Anomaly."""
        key = (partition.topic_id, partition.topic_partition.partition)
        leader = Leader(machine.node_id, life)
        term = self._terms.setdefault((key, partition.leader_epoch), _Term(leader))
        if term.leader != leader:
            raise Anomaly(
                "two-writers",
                f"{partition.topic_partition} epoch {partition.leader_epoch}: {leader} leads, but"
                f" so did {term.leader}",
            )

    def committed(self, key: Key) -> int:
        """Return the largest high watermark of a partition so far."""
        return self._committed.get(key, 0)

    def check(self, machine: Machine, process: ClusterProcess) -> None:
        """Check the replicas of a broker after it has run. Raises Anomaly."""
        changed: set[Key] = set()
        for name, log in process.broker.log_manager.logs.items():
            if log.closed or log.offline:
                continue
            state = (log.high_watermark, log.durable_end_offset, log.log_end_offset, log.rewrites)
            if self._seen.get(log) != state:
                self._seen[log] = state
                changed.add(self._note(machine, name, log))
        for partition in process.broker.replica_manager.topics.partitions.values():
            if partition.leader == machine.node_id:
                self._check_term(partition)
        if self._zxid != self._stored.zxid:
            self._zxid = self._stored.zxid
            changed = set(self._names)
        for key in changed:
            self._check_durable(key)

    def _note(self, machine: Machine, name: TopicPartition, log: Log) -> Key:
        key = (log.topic_id, name.partition)
        self._names[key] = name
        self._committed[key] = max(self._committed.get(key, 0), log.high_watermark)
        end_offset = min(log.durable_end_offset, log.log_end_offset)
        self._durable.setdefault(key, {})[machine.node_id] = end_offset
        return key

    def _check_term(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.topic_partition.partition)
        term = self._terms.get((key, partition.leader_epoch))
        if term is None:
            return  # Its role is about to begin.
        if partition.high_watermark < term.high_watermark:
            raise Anomaly(
                "high-watermark-fell",
                f"{partition.topic_partition} epoch {partition.leader_epoch}: from"
                f" {term.high_watermark} to {partition.high_watermark}",
            )
        term.high_watermark = partition.high_watermark

    def _check_durable(self, key: Key) -> None:
        name, committed = self._names[key], self._committed[key]
        for member in self._stored.isr(name, key[0]):
            # A replica that has no log yet has nothing.
            end_offset = self._durable[key].get(member, 0)
            if end_offset < committed:
                raise Anomaly(
                    "committed-not-durable",
                    f"{name}: a high watermark was {committed}, but broker {member} of the in-sync"
                    f" replicas has only {end_offset}",
                )
