"""Rules for the replicas of partitions, checked with access to the state of the brokers.

- One process leads a partition in each leader epoch, and its high watermark never falls in it.
- All records below any high watermark are durable on every member of the in-sync replicas that
  ZooKeeper stores, also on those whose process is not running.
- A member that has lost its disk (disk_faults.py) is an exception until it has left the in-sync
  replicas. It must not lead. A member with an older copy of its disk may lead only if the
  controller, or all other members, could not notice its restart; then, records may be lost, and the
  run ends.

monitor.py checks the offsets of each replica, and final_replicas.py compares the replicas at the
end of a run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from plog.types import TopicPartition, Uuid
from plogd.log.log import Log
from plogd.metadata.cache import NO_LEADER
from plogd.metadata.store import PartitionValue, TopicValue
from plogd.metadata.zookeeper.paths import CONTROLLER, broker_path, path_of
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


class PromiseEnded(Exception):
    """Records may be lost from now on: an operator has used an older copy of a disk at a time at
    which the brokers cannot recognize it."""


class _OldDisk(NamedTuple):
    """What was true when a broker's disk was replaced by an older copy."""

    controller_epoch: int
    broker_epochs: Mapping[int, int]
    """The broker epochs of the other running brokers."""


class _Loss(NamedTuple):
    """A replica that may lack records although ZooKeeper counts it as in sync."""

    broker_epoch: int
    """The broker epoch when the disk was lost."""
    old_disk: _OldDisk | None = None
    """Set if the broker has an older copy of its disk."""


class StoredPartitions:
    """The states of partitions in ZooKeeper, decoded once for each version."""

    def __init__(self, zookeeper: MockZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._decoded: dict[str, tuple[int, PartitionValue | TopicValue]] = {}

    @property
    def zxid(self) -> int:
        """The number of the last change of any znode."""
        return self._zookeeper.znodes.zxid

    def registration(self, path: str) -> int:
        """Return a number of the present registration of a broker or the controller, or -1."""
        stat = self._zookeeper.stat(path)
        return -1 if stat is None else stat.czxid

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

    def partitions(self) -> Iterator[tuple[Key, TopicPartition]]:
        """Return all partitions."""
        for name, topic in self.topics().items():
            for number in topic.assignments:
                yield (topic.topic_id, number), TopicPartition(name, number)

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
        self._lost: dict[Key, dict[int, _Loss]] = {}
        """The replicas that have lost their disks, by broker id."""

    # -- lost disks ---------------------------------------------------------------------------

    def may_lose(self, machine: Machine) -> bool:
        """Whether a machine may lose its disk: other members that run have all its records."""
        others = [
            other
            for other in machine.cluster.machines.values()
            if other is not machine and other.is_serving and self._is_registered(other)
        ]
        for key, name in self._stored.partitions():
            isr = self._stored.isr(name, key[0])
            if machine.node_id in isr and not any(
                other.node_id in isr and self._has_all(key, name, other) for other in others
            ):
                return False
        return True

    def _has_all(self, key: Key, name: TopicPartition, machine: Machine) -> bool:
        """Whether a running member of the ISR has all records, and knows that it has them."""
        # Without a log, the broker may not know the topic yet. To lose all other replicas is then
        # the same as to lose all. A new log may have a mark, although it has always been empty.
        process = machine.process
        return (
            machine.node_id in self._durable.get(key, {})
            and machine.node_id not in self._lost.get(key, {})
            and process is not None
            and process.broker.log_manager.losses.get(name) is None
        )

    def _is_registered(self, machine: Machine) -> bool:
        return self._stored.registration(broker_path(machine.node_id)) >= 0

    def may_return_old(self, machine: Machine) -> bool:
        """Whether a machine may get an older disk: also, another machine is the controller."""
        return self.may_lose(machine) and any(
            other.is_serving and other.process is not None and other.process.is_controller
            for other in machine.cluster.machines.values()
            if other is not machine
        )

    def disk_lost(
        self,
        machine: Machine,
        kept: Collection[TopicPartition],
        old_disk: _OldDisk | None = None,
    ) -> None:
        """Note that a machine has lost all logs except those of the partitions in `kept`."""
        loss = _Loss(self._stored.registration(broker_path(machine.node_id)), old_disk)
        for key, name in (*self._stored.partitions(), *self._names.items()):
            if name not in kept:
                self._durable.setdefault(key, {}).pop(machine.node_id, None)
                self._lost.setdefault(key, {})[machine.node_id] = loss

    def disk_restored(self, machine: Machine) -> None:
        """Note that a machine has an older copy of all its logs."""
        old_disk = _OldDisk(
            self._stored.registration(CONTROLLER),
            {
                other.node_id: self._stored.registration(broker_path(other.node_id))
                for other in machine.cluster.machines.values()
                if other is not machine and other.is_serving
            },
        )
        self.disk_lost(machine, (), old_disk)

    def _check_elected(self, key: Key, node_id: int) -> None:
        """Check that a new leader has all records, as far as that is promised."""
        loss = self._lost.get(key, {}).get(node_id)
        committed = self._committed.get(key, 0)
        if loss is None or self._durable[key].get(node_id, 0) >= committed:
            return
        name = self._names[key]
        if loss.old_disk is not None and not self._must_notice(loss.old_disk, key, name):
            raise PromiseEnded(f"{name}: broker {node_id} leads with an older copy of its disk")
        raise Anomaly(
            "committed-not-durable",
            f"{name}: a high watermark was {committed}, but broker {node_id} leads with another"
            " disk",
        )

    def _must_notice(self, old: _OldDisk, key: Key, name: TopicPartition) -> bool:
        """Whether the controller, and another member of the ISR, have run all the time."""
        stored = self._stored
        return stored.registration(CONTROLLER) == old.controller_epoch and any(
            stored.registration(broker_path(member)) == old.broker_epochs.get(member)
            for member in stored.isr(name, key[0])
        )

    def _still_lost(self, key: Key, isr: Collection[int]) -> Collection[int]:
        """Return the replicas that may lack records, after forgetting those that cannot."""
        lost = self._lost.get(key)
        for member, loss in list(lost.items()) if lost else ():
            epoch = self._stored.registration(broker_path(member))
            # A leader may have proposed an earlier life of the broker as a member.
            has_left = member not in isr and epoch not in (-1, loss.broker_epoch)
            is_complete = self._durable[key].get(member, 0) >= self._committed.get(key, 0)
            # A new disk has a mark, even if the log was empty.
            if has_left or (loss.old_disk is not None and is_complete):
                del lost[member]
        return lost or ()

    # -- checks -------------------------------------------------------------------------------

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
        self._check_elected(key, machine.node_id)

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
        for partition in process.broker.replica_manager.topics.partitions.values():
            self._check_role(machine.node_id, partition)

    def _check_role(self, node_id: int, partition: Partition) -> None:
        """Check that a replica that has lost its disk has no role before it has left the ISR."""
        key = (partition.topic_id, partition.topic_partition.partition)
        loss = self._lost.get(key, {}).get(node_id)
        if loss is None or loss.old_disk is not None or partition.leader == NO_LEADER:
            return
        if node_id in self._stored.isr(partition.topic_partition, key[0]):
            raise Anomaly(
                "role-after-loss",
                f"{partition.topic_partition}: broker {node_id} follows {partition.leader} although"
                " its disk was lost, and it is still in the ISR",
            )

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
        isr = self._stored.isr(name, key[0])
        lost = self._still_lost(key, isr)
        for member in isr:
            if member in lost:
                continue
            # A replica that has no log yet has nothing.
            end_offset = self._durable[key].get(member, 0)
            if end_offset < committed:
                raise Anomaly(
                    "committed-not-durable",
                    f"{name}: a high watermark was {committed}, but broker {member} of the in-sync"
                    f" replicas has only {end_offset}",
                )
