"""One simulated run: a broker, its disk and network, clients, a nemesis, and one virtual clock.

Every event is a call on the world's timers, executed sequentially in virtual time; all random
choices come from one seed. So a seed replays exactly, with any faults, on any machine.

A run has three parts: `steps` steps of work under faults; then the faults end and the clients
finish; then everything is read and compared with the history, twice, with a clean restart in
between.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from plogd.log.log import Log
from tests.helpers.sim.sim_files import Operation, SimCrash, SimFiles
from tests.sim.admins import Founder, Remaker
from tests.sim.checker import Anomaly, History
from tests.sim.client import Client
from tests.sim.compaction_faults import CompactionFaults
from tests.sim.consumers import Consumer
from tests.sim.exceptions import Exceptions
from tests.sim.final import FinalReader, check_log, check_retention
from tests.sim.group_history import GroupHistory
from tests.sim.group_plan import make_groups
from tests.sim.idle_producer import BusyProducer, IdleProducer
from tests.sim.inside import LifeEnded
from tests.sim.insiders import make_inside_topics, make_insiders
from tests.sim.members import Member
from tests.sim.monitor import Monitor
from tests.sim.nemesis import Nemesis
from tests.sim.network import Network
from tests.sim.outsiders import FinalOffsets, Outsider
from tests.sim.plan import (
    LOG_DIRS,
    REMADE_TOPICS,
    make_config,
    make_tasks,
    make_topics,
    roll_soon,
)
from tests.sim.process import Process
from tests.sim.producers import IdempotentProducer, PlainProducer
from tests.sim.service import Service
from tests.sim.simulation import Simulation
from tests.sim.slow_directory import SlowDirectory
from tests.sim.topics import Topics

_START_PATIENCE_MS = 120_000.0
_DRAIN_MS = 300_000.0
_WORK_MS = 10_000_000.0
_IDLE_PRODUCERS = 2
"""Number of idle producers for each compacted topic."""


class World(Simulation):
    """A simulated run and all its parts. `trace` is called with a line for each notable event."""

    def __init__(
        self,
        seed: int,
        steps: int,
        *,
        trace: Callable[[str], None] | None = None,
        trace_operations: bool = False,
        with_monitor: bool = True,
        members: int | None = None,
        exceptions: bool | None = None,
    ) -> None:
        super().__init__(seed, steps, trace=trace)
        made_before = LOG_DIRS if self.chance.random() < 0.7 else ()
        self.files = SimFiles(made_before, clock=self.clock)
        self.files.sync_fs_supported = self.chance.random() < 0.5
        self.files.everything_cached = self.chance.random() < 0.8
        self.history = History()
        self.topics = Topics()
        self.network = Network(self.clock, self.timers, self.derive(), self.fail)
        self.config = make_config(self.chance, seed)
        self.plans += make_topics(self.chance)
        inside_chance = random.Random(f"inside {seed}")
        self.plans += make_inside_topics(inside_chance)
        compaction_chance = random.Random(f"compaction {seed}")
        self.plans = [roll_soon(plan, compaction_chance) for plan in self.plans]
        self.history.compacted = {
            plan.name: plan.delete_retention_ms for plan in self.plans if plan.is_compacted
        }
        self.tasks = make_tasks(self.chance, self.config)
        self.group_plans, topic = make_groups(random.Random(f"groups {seed}"), members)
        if self.group_plans:
            self.plans.append(topic)
        self.max_job_ms = 5.0
        self.max_down_ms = 200.0
        self.crash_is_power_loss = True
        self.largest_now_ms = self.clock.now_ms()
        self._trace_operations = trace_operations
        self._monitor = Monitor() if with_monitor else None
        self.last_fault_ms = -1.0
        """When the disk last had a fault."""
        self.exceptions = Exceptions(self, is_enabled=exceptions)
        self.network.forgives = self.exceptions.faults.caused
        self.service = Service(self)
        self.groups = GroupHistory(self.clock.monotonic_ms)
        for plan in self.group_plans:
            plan.view = self.groups.view(plan.name)
        self.nemesis = Nemesis(self)
        self.slow_directory = SlowDirectory(self)
        self._truncating: set[Log] = set()
        self._transaction_writers, self._followers = make_insiders(self, inside_chance)
        self.compaction_faults = CompactionFaults(self, compaction_chance)

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all parts. Raises Anomaly."""
        self.service.start()
        self._start_clients()
        self.start(self.nemesis.run(), "nemesis")
        if self.slow_directory.is_enabled:
            self.start(self.slow_directory.run(), "slow directory")
        if self.exceptions.is_enabled:
            self.start(self.exceptions.run(), "exceptions")
        self.run_until(lambda: not self.working, _WORK_MS, "the work")
        self._heal()
        self.compaction_faults.work_ended()
        self.run_until(self._is_compaction_over, _WORK_MS, "the compactions")
        self._heal()
        self.run_until(self._is_answered, _DRAIN_MS, "the last responses")
        self._await_service()
        self.run_until(lambda: self.service.is_idle, _DRAIN_MS, "the last jobs")
        before = self.read_everything()
        self._restart_cleanly()
        after = self.read_everything()
        self._compare(before, after)

    def _heal(self) -> None:
        """End all faults."""
        self.nemesis.heal()
        self.slow_directory.heal()
        self.exceptions.heal()

    def _is_compaction_over(self) -> bool:
        """Whether the faults of compactions have ended, too."""
        self._restart_if_failed()
        return not self.compaction_faults.is_active

    def _is_answered(self) -> bool:
        """Whether no client is waiting."""
        self._restart_if_failed()
        return not self._running

    def _restart_if_failed(self) -> None:
        """Repair a directory that fails although the faults have ended, which takes a restart."""
        if self.service.has_failed_disk:
            self.service.stop()

    def _start_clients(self) -> None:
        chance = self.chance
        clients: list[Client] = [Founder(self, "founder", self.plans)]
        clients += [PlainProducer(self, f"p{n}") for n in range(chance.randint(1, 3))]
        partitions = [
            (plan.name, n)
            for plan in self.plans
            if plan.is_durable and plan.is_written_by_clients
            for n in range(plan.partitions)
        ]
        for number, (name, partition) in enumerate(chance.sample(partitions, chance.randint(1, 4))):
            clients.append(IdempotentProducer(self, f"i{number}", name, partition))
        compacted = [
            plan.name for plan in self.plans if plan.is_compacted and plan.is_written_by_clients
        ]
        for name in compacted:
            clients.append(BusyProducer(self, f"busy.{name}", name, 0))
            clients += [
                IdleProducer(self, f"idle{number}.{name}", name, 0)
                for number in range(_IDLE_PRODUCERS)
            ]
        clients += [Consumer(self, f"c{n}") for n in range(chance.randint(1, 4))]
        if chance.random() < 0.7:
            clients.append(Remaker(self, "remaker", REMADE_TOPICS))
        for plan in self.group_plans:
            clients.append(Outsider(self, f"{plan.name}.outsider", plan))
            clients += [
                Member(self, f"{plan.name}.m{number}", plan, instance)
                for number, instance in enumerate(plan.instances)
            ]
        for actor in (*clients, *self._transaction_writers, *self._followers):
            self.start(actor.run(), actor.name)

    def _await_service(self) -> None:
        self.run_until(lambda: self.service.is_serving, _START_PATIENCE_MS, "the broker's start")

    def _restart_cleanly(self) -> None:
        life = self.service.life_number
        self.service.stop()
        self.run_until(lambda: self.service.life_number > life, _START_PATIENCE_MS, "a clean stop")
        self._await_service()

    def read_everything(self) -> FinalReader:
        """Read everything and compare it with the history."""
        reader = FinalReader(self, "final")
        self.start(reader.run(), reader.name)
        for plan in self.group_plans:
            if plan.is_founded():
                self.start(FinalOffsets(self, f"{plan.name}.final", plan).run(), "final offsets")
        for follower in self._followers:
            self.start(follower.check(), follower.name)
        self.run_until(lambda: not self._running, _DRAIN_MS, "the final reading")
        for assigned, log in reader.logs.items():
            check_log(self.history, assigned.key, log, now_ms=self.clock.now_ms())
            check_retention(self, assigned, log, largest_now_ms=self.largest_now_ms)
        return reader

    def _compare(self, before: FinalReader, after: FinalReader) -> None:
        """Check that a clean restart changed nothing, except for records deleted by retention."""
        for assigned, log in before.logs.items():
            again = after.logs.get(assigned)
            if again is None or again.end_offset < log.end_offset:
                raise Anomaly(
                    "lost-write",
                    f"{assigned.topic}-{assigned.partition} ended at {log.end_offset} before a "
                    f"clean restart, after it: {again and again.end_offset}",
                )

    # -- called by the loop -------------------------------------------------------------------

    def __str__(self) -> str:
        return "; ".join(str(plan) for plan in self.group_plans if plan.present)

    def crashed(self, crash: SimCrash) -> None:
        """End the process in whose file operation a planned crash has occurred."""
        [operation] = crash.args
        self.service.end(
            power_loss=self.crash_is_power_loss,
            inside_append=isinstance(operation, Operation) and operation.name == "append",
        )

    def look(self) -> None:
        """Check the state of the broker after an event."""
        self.largest_now_ms = max(self.largest_now_ms, self.clock.now_ms())
        now_ms = self.clock.monotonic_ms()
        if self._troubles:
            self.last_fault_ms = now_ms
        if self._troubles or not self.service.is_serving:
            self._last_trouble_ms = now_ms
        process = self.service.process
        if self._monitor is not None and process is not None and self._failure is None:
            self._monitor.check(process.broker, self._truncating)

    # -- called by actors -------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """End the run, unless an injected exception is the cause; the first failure counts."""
        if self.exceptions.faults.caused(error):
            self.trace(f"an injected exception propagated: {error!r}")
            self.count("exceptions out of the broker")
        else:
            super().fail(error)

    def as_anomaly(self, error: Exception) -> Exception:
        """Return the anomaly for an exception from an actor or the broker."""
        process = self.service.process
        return error if process is None else process.crash(error)

    @contextmanager
    def truncating(self, log: Log) -> Iterator[None]:
        """While a log is truncated, its ends may fall."""
        self._truncating.add(log)
        try:
            yield
        except LifeEnded:
            # A broker that is stopping may still complete the truncation.
            raise
        except BaseException:
            self._truncating.discard(log)
            raise
        self._truncating.discard(log)

    @property
    def forgives_bugs(self) -> bool:
        """Whether clients may receive an unexpected error: one was injected."""
        return self.exceptions.have_occurred

    def unsynced_is_lost(self) -> None:
        """After a power loss, discard the history of topics that are not durable."""
        for topic in self.topics.by_id.values():
            plan = self.plan_of(topic.name)
            if plan is not None and not plan.is_durable:
                self.history.forget(topic.topic_id)

    def make_process(self, number: int) -> Process:
        """Return the process of the broker's next life."""
        return Process(self, number)

    def explains(self, error: Exception) -> bool:
        """Whether a start or a stop may fail with this error without a fault of the disk."""
        return False

    def life_begins(self) -> None:
        """A new process of the broker is about to start."""
        self.trace(f"life {self.service.life_number} begins")
        if self._monitor is not None:
            self._monitor.new_life()
        self.files.append_ms = self.slow_directory.write_ms
        self.files.on_operation = self._operation_begins

    def _operation_begins(self, operation: Operation) -> None:
        if self._trace_operations:
            self.trace(f"disk: {operation}")
        self.compaction_faults.operation_begins(operation)

    def set_speed(self, *, job_ms: float | None = None, network_ms: float | None = None) -> None:
        """Set the longest duration of a job, and the longest delay of a frame."""
        if job_ms is not None:
            self.max_job_ms = job_ms
            if self.service.process is not None:
                self.service.process.jobs.max_ms = job_ms
        if network_ms is not None:
            self.network.max_delay_ms = network_ms
