"""One simulated run of a cluster: several machines, ZooKeeper, the network, clients and faults.

Like `World`, a run has three parts: `steps` steps of work under faults; then the faults end, and
the clients finish; then all replicas must be in sync, and everything is read and compared, twice,
with a clean restart of all brokers in between.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable

from plog.errors import ErrorCode
from plog.types import TopicPartition
from plogd.ports import Later
from plogd.replica.partition import Partition
from plogd.testing.mock_zookeeper import MockZooKeeper
from plogd.testing.peer_network import PeerNetwork
from tests.helpers.sim.sim_files import SimCrash
from tests.helpers.sim.sim_time import LifeTimers
from tests.sim.admins import Founder, Remaker
from tests.sim.checker import Anomaly
from tests.sim.client import Client
from tests.sim.cluster.cluster_groups import (
    coordinator_term,
    group_clients,
    make_cluster_groups,
)
from tests.sim.cluster.cluster_nemesis import ClusterNemesis
from tests.sim.cluster.cluster_network import ClusterNetwork, Cuts
from tests.sim.cluster.cluster_plan import (
    choose_session_ms,
    make_cluster_config,
    make_cluster_topics,
)
from tests.sim.cluster.disk_faults import DiskFaults
from tests.sim.cluster.final_replicas import check_replicas, missing_in_sync
from tests.sim.cluster.library.library_client import bugs_end_the_run
from tests.sim.cluster.library.library_clients import library_clients, make_library_group
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.machine_clock import MAX_DRIFT
from tests.sim.cluster.operator_client import Operator
from tests.sim.cluster.replica_checker import PromiseEnded, ReplicaChecker, StoredPartitions
from tests.sim.cluster.replicated_history import ReplicatedHistory
from tests.sim.cluster.zookeeper_faults import ZooKeeperFaults
from tests.sim.consumers import Consumer
from tests.sim.final import FinalReader, check_log
from tests.sim.group_history import GroupHistory
from tests.sim.network import Connection
from tests.sim.outsiders import FinalOffsets
from tests.sim.plan import REMADE_TOPICS
from tests.sim.producers import IdempotentProducer, PlainProducer
from tests.sim.simulation import Simulation
from tests.sim.topics import Topics

_WORK_MS = 10_000_000.0
_DRAIN_MS = 300_000.0
_LOOK_MS = 20.0
_BRIEF = 0.75
_BRIEF_MS = 8.0
"""The share of brief pauses: requests must be in flight when a broker dies."""
_PACE = 5.0
"""Clients pause longer than with one broker, because an election takes longer than a restart."""

_CLUSTER_ERRORS = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    }
)


class Lives:
    """The state of the brokers that clients need; every start and election begins a new life."""

    has_met_faults = True
    """Coordinators move at any time, so that clients may receive their errors at any time."""

    def __init__(self) -> None:
        self.life_number = 0


class ClusterWorld(Simulation):
    """A simulated run of `brokers` brokers."""

    has_several_brokers = True
    clock_drift = MAX_DRIFT
    cluster_errors = _CLUSTER_ERRORS

    def __init__(
        self,
        seed: int,
        steps: int,
        brokers: int,
        *,
        trace: Callable[[str], None] | None = None,
        trace_operations: bool = False,
        with_monitor: bool = True,
    ) -> None:
        super().__init__(seed, steps, trace=trace)
        self.pace = _PACE
        self.usual_replicas = min(3, brokers)
        self.traces_operations = trace_operations
        self.with_monitor = with_monitor
        self.chance = random.Random(f"cluster of {brokers}, seed {seed}")
        self.session_ms = choose_session_ms(self.chance)
        self.config = make_cluster_config(self.chance, seed, brokers)
        self.plans += make_cluster_topics(self.chance, brokers)
        self.history = ReplicatedHistory()
        self.topics = Topics()
        self.topics.shows_all = False
        self.service = Lives()
        self.groups = GroupHistory(self.clock.monotonic_ms)
        self.group_plans = [
            *make_cluster_groups(self.chance),
            *make_library_group(random.Random(f"library group {seed}")),
        ]
        for plan in self.group_plans:
            plan.view = self.groups.view(plan.name)
        timers = LifeTimers(self.timers, self.fail)
        self.max_peer_delay_ms = 2.0
        network_chance = self.derive()
        self.peer_network = PeerNetwork(
            self.clock, timers, lambda *_: network_chance.random() ** 2 * self.max_peer_delay_ms
        )
        self.zookeeper = MockZooKeeper(self.clock, timers)
        self.stored = StoredPartitions(self.zookeeper)
        self.replicas = ReplicaChecker(self.stored)
        ids = list(range(1, brokers + 1))
        self.cuts = Cuts(self.peer_network, ids)
        self.machines = {node_id: Machine(self, node_id) for node_id in ids}
        self.network = ClusterNetwork(self.machines)
        self.nemesis = ClusterNemesis(self)
        self.zookeeper_faults = ZooKeeperFaults(self)
        self.disk_faults = DiskFaults(self)

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all parts. Raises Anomaly."""
        try:
            with bugs_end_the_run(self):
                self._run()
        except PromiseEnded as end:
            self.trace(f"the run ends: {end}")
            self.count("runs that end early")

    def _run(self) -> None:
        for machine in self.machines.values():
            self.timers.call_later(self.chance.uniform(0, 50), machine.service.start)
            self.start(machine.nemesis.run(), f"nemesis of {machine.name}")
        self._start_clients()
        self.start(self.nemesis.run(), "nemesis")
        self.start(self.zookeeper_faults.run(), "faults of ZooKeeper")
        self.start(self.disk_faults.run(), "faults of disks")
        self.run_until(lambda: not self.working, _WORK_MS, "the work")
        self._heal()
        operator = Operator(self)
        self.start(operator.run(), operator.name)
        self.run_until(self._is_drained, _DRAIN_MS, "the last responses")
        self._heal()
        self._await_in_sync()
        before = self.read_everything()
        self._restart_cleanly()
        after = self.read_everything()
        self._compare(before, after)

    def _heal(self) -> None:
        """End all faults."""
        self.trace("all faults end")
        self.nemesis.heal()
        self.zookeeper_faults.heal()
        for machine in self.machines.values():
            machine.heal()

    def _is_drained(self) -> bool:
        self._restart_failed()
        return not self._running

    def _restart_failed(self) -> None:
        """Restart brokers whose disks have failed although the faults have ended."""
        for machine in self.machines.values():
            if machine.service.has_failed_disk:
                machine.service.stop()

    @property
    def is_answered(self) -> bool:
        """Whether no client except the operator is waiting."""
        return self._running.keys() <= {"operator"}

    def _start_clients(self) -> None:
        chance = self.chance
        clients: list[Client] = [Founder(self, "founder", self.plans)]
        clients += [PlainProducer(self, f"p{n}") for n in range(chance.randint(1, 2))]
        partitions = [
            (plan.name, number) for plan in self.plans for number in range(plan.partitions)
        ]
        for number, (name, partition) in enumerate(chance.sample(partitions, chance.randint(2, 4))):
            clients.append(IdempotentProducer(self, f"i{number}", name, partition))
        clients += [Consumer(self, f"c{n}") for n in range(chance.randint(1, 4))]
        if chance.random() < 0.7:
            clients.append(Remaker(self, "remaker", REMADE_TOPICS))
        clients += group_clients(self)
        for client in (*clients, *library_clients(self)):
            self.start(client.run(), client.name)

    def _await_in_sync(self) -> None:
        next_look_ms = 0.0

        def done() -> bool:
            # Not after each event, because it looks at all replicas.
            nonlocal next_look_ms
            if self.clock.monotonic_ms() < next_look_ms:
                return False
            next_look_ms = self.clock.monotonic_ms() + _LOOK_MS
            return self._is_in_sync()

        self.run_until(done, _DRAIN_MS, "replicas that are in sync")

    def _is_in_sync(self) -> bool:
        self._restart_failed()
        return all(machine.is_serving for machine in self.machines.values()) and not (
            missing_in_sync(self)
        )

    def __str__(self) -> str:
        down = [one.name for one in self.machines.values() if not one.is_serving]
        groups = "; ".join(str(plan) for plan in self.group_plans if plan.present)
        return f"not serving: {down}; not in sync: {missing_in_sync(self)}; {groups}"

    def _restart_cleanly(self) -> None:
        for machine in self.machines.values():
            life = machine.service.life_number
            machine.service.stop()
            self.run_until(
                lambda machine=machine, life=life: machine.service.life_number > life,
                _DRAIN_MS,
                f"a clean stop of {machine.name}",
            )
            self._await_in_sync()

    def read_everything(self) -> FinalReader:
        """Read everything and compare it with the history."""
        check_replicas(self)
        self.history.is_final = self.topics.shows_all = True
        reader = FinalReader(self, "final")
        self.start(reader.run(), reader.name)
        for plan in self.group_plans:
            if plan.is_founded():
                self.start(FinalOffsets(self, f"{plan.name}.final", plan).run(), "final offsets")
        self.run_until(lambda: not self._running, _DRAIN_MS, "the final reading")
        for assigned, log in reader.logs.items():
            check_log(self.history, assigned.key, log)
        return reader

    def _compare(self, before: FinalReader, after: FinalReader) -> None:
        """Check that clean restarts have lost nothing."""
        for assigned, log in before.logs.items():
            again = after.logs.get(assigned)
            if again is None or again.end_offset < log.end_offset:
                raise Anomaly(
                    "lost-write",
                    f"{assigned.topic}-{assigned.partition} ended at {log.end_offset} before clean"
                    f" restarts, after them: {again and again.end_offset}",
                )

    # -- called by the loop -------------------------------------------------------------------

    def crashed(self, crash: SimCrash) -> None:
        """End the process in whose file operation a planned crash has occurred."""
        [machine] = [one for one in self.machines.values() if one.files.is_dead]
        machine.crashed(crash)

    def look(self) -> None:
        """Check the state of the brokers that have run."""
        if self._troubles:
            self._last_trouble_ms = self.clock.monotonic_ms()
        for machine in self.machines.values():
            if not machine.is_serving:
                self._last_trouble_ms = self.clock.monotonic_ms()
            machine.check()

    def as_anomaly(self, error: Exception) -> Exception:
        """Return the anomaly for an exception from an actor, ZooKeeper or the network."""
        if isinstance(error, Anomaly | PromiseEnded):
            return error
        return Anomaly("crash", "".join(traceback.format_exception(error)))

    def pause(self, chance: random.Random) -> Later[None]:
        """Wait for one step, or only briefly, so that a client acts several times in a step."""
        if chance.random() < _BRIEF:
            return self.sleep(chance.uniform(0, _BRIEF_MS))
        return super().pause(chance)

    # -- called by machines and clients -------------------------------------------------------

    def event(self, what: str) -> None:
        """Note a start or an election: what clients know about the broker may be out of date."""
        self.service.life_number += 1
        self.count(what)

    def elected(self, machine: Machine, partition: Partition, life: int) -> None:
        """Note that a process leads a partition in a new leader epoch."""
        self.event("elections")
        self.trace(
            f"{machine.name}: leads {partition.topic_partition} in epoch {partition.leader_epoch}"
        )
        if self.with_monitor:
            try:
                self.replicas.elected(machine, partition, life)
            except (Anomaly, PromiseEnded) as error:
                self.fail(error)

    def coordinator_term(self, group: str, connection: Connection) -> int | None:
        return coordinator_term(self, group, connection)

    def leader_epoch(self, topic: str, partition: int, connection: Connection) -> int | None:
        """Return the leader epoch in which the broker at the other end leads a partition.

        None if it is not the leader, according to ZooKeeper and to the broker itself.
        """
        key = TopicPartition(topic, partition)
        stored = self.stored.state(key)
        process = self.machines[connection.broker_id].process
        if stored is None or process is None or stored.leader != connection.broker_id:
            return None
        hosted = process.broker.replica_manager.topics.partitions.get(key)
        if hosted is None or hosted.leader_epoch != stored.leader_epoch:
            return None
        return stored.leader_epoch

    def writer_at(self, connection: Connection) -> int:
        """Return a number of the process that answers on this open connection."""
        machine = self.machines[connection.broker_id]
        return machine.service.life_number * len(self.machines) + machine.node_id
