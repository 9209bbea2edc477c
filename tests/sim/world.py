"""One simulated run: a broker, its disk and network, clients, a nemesis, and one virtual clock.

Every event is a call on the world's timers, executed sequentially in virtual time; all random
choices come from one seed. So a seed replays exactly, with any faults, on any machine.

A run has three parts: `steps` steps of work under faults; then the faults end and the clients
finish; then everything is read and compared with the history, twice, with a clean restart in
between.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from plogd.log.log import Log
from plogd.ports import Later, spawn
from tests.helpers.sim.sim_files import Operation, SimCrash, SimFiles
from tests.helpers.sim.sim_time import SimClock, SimTimer, SimTimers
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
from tests.sim.network import Connection, Network
from tests.sim.outsiders import FinalOffsets, Outsider
from tests.sim.plan import (
    LOG_DIRS,
    REMADE_TOPICS,
    make_config,
    make_tasks,
    make_topics,
    roll_soon,
)
from tests.sim.producers import IdempotentProducer, PlainProducer
from tests.sim.service import Service
from tests.sim.slow_directory import SlowDirectory
from tests.sim.stage import Stage
from tests.sim.topics import Topics

_PATIENCE_MS = 40_000.0
_START_PATIENCE_MS = 120_000.0
_DRAIN_MS = 300_000.0
_WORK_MS = 10_000_000.0
_IDLE_PRODUCERS = 2
"""Number of idle producers for each compacted topic."""


class World(Stage):
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
        self.seed = seed
        self.steps = steps
        self.chance = random.Random(seed)
        self.clock = SimClock()
        self.timers = SimTimers(self.clock)
        made_before = LOG_DIRS if self.chance.random() < 0.7 else ()
        self.files = SimFiles(made_before, clock=self.clock)
        self.files.sync_fs_supported = self.chance.random() < 0.5
        self.files.everything_cached = self.chance.random() < 0.8
        self.history = History()
        self.topics = Topics()
        self.network = Network(self.clock, self.timers, self._derive(), self.fail)
        self.config = make_config(self.chance, seed)
        super().__init__(make_topics(self.chance))
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
        self.working = True
        self.crash_is_power_loss = True
        self.largest_now_ms = self.clock.now_ms()
        self._trace = trace
        self._trace_operations = trace_operations
        self._monitor = Monitor() if with_monitor else None
        self._steps_done = 0
        self._failure: Exception | None = None
        self._running: dict[str, int] = {}
        self._last_trouble_ms = 0.0
        self.last_fault_ms = -1.0
        """When the disk last had a fault."""
        self.exceptions = Exceptions(self, is_enabled=exceptions)
        self.network.forgives = self.exceptions.faults.caused
        self.service = Service(self)
        self.groups = GroupHistory(self.clock.monotonic_ms, lambda: self.service.coordinator_life)
        for plan in self.group_plans:
            plan.view = self.groups.view(plan.name)
        self.nemesis = Nemesis(self)
        self.slow_directory = SlowDirectory(self)
        self._truncating: set[Log] = set()
        self._transaction_writers, self._followers = make_insiders(self, inside_chance)
        self.compaction_faults = CompactionFaults(self, compaction_chance)

    def _derive(self) -> random.Random:
        """Return a random generator for one part, independent of the other parts."""
        return random.Random(self.chance.random())

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
        self._run_until(lambda: not self.working, _WORK_MS, "the work")
        self._heal()
        self.compaction_faults.work_ended()
        self._run_until(self._is_compaction_over, _WORK_MS, "the compactions")
        self._heal()
        self._run_until(self._is_answered, _DRAIN_MS, "the last responses")
        self._await_service()
        self._run_until(lambda: self.service.is_idle, _DRAIN_MS, "the last jobs")
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
        self._run_until(lambda: self.service.is_serving, _START_PATIENCE_MS, "the broker's start")

    def _restart_cleanly(self) -> None:
        life = self.service.life_number
        self.service.stop()
        self._run_until(lambda: self.service.life_number > life, _START_PATIENCE_MS, "a clean stop")
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
        self._run_until(lambda: not self._running, _DRAIN_MS, "the final reading")
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

    def _run_until(self, done: Callable[[], bool], limit_ms: float, what: str) -> None:
        deadline_ms = self.clock.monotonic_ms() + limit_ms
        while not done():
            due_ms = self.timers.next_due_ms
            if due_ms is None or due_ms > deadline_ms:
                groups = "; ".join(str(plan) for plan in self.group_plans if plan.present)
                raise Anomaly("stuck", f"waited for {what}; running: {self._running}; {groups}")
            try:
                self.timers.run_next()
            except SimCrash as crash:
                self.trace(f"crash at {crash}")
                [operation] = crash.args
                self.service.end(
                    power_loss=self.crash_is_power_loss,
                    inside_append=isinstance(operation, Operation) and operation.name == "append",
                )
            self._look()
            if self._failure is not None:
                raise self._failure

    def _look(self) -> None:
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

    def start(self, coroutine: Coroutine[Later[Any], Any, None], name: str) -> None:
        """Run an actor's coroutine; an exception from it ends the run."""
        self._running[name] = self._running.get(name, 0) + 1

        def ended(error: Exception | None) -> None:
            self._running[name] -= 1
            if not self._running[name]:
                del self._running[name]
            if error is not None:
                self.fail(error)

        spawn(coroutine).then(lambda _: ended(None), ended)

    def sleep(self, delay_ms: float) -> Later[None]:
        """Wait."""
        later: Later[None] = Later()
        self.timers.call_later(delay_ms, lambda: later.succeed(None))
        return later

    def pause(self, chance: random.Random) -> Later[None]:
        """Wait for one step: a short pause between two actions of a client."""
        self._steps_done += 1
        if self._steps_done >= self.steps and self.working:
            self.trace("the work is done")
            self.working = False
        return self.sleep(chance.random() ** 2 * chance.choice((2, 50, 300)))

    def watch(self, connection: Connection, what: str, patience_ms: float) -> SimTimer:
        """Fail a response that is late; the run is `stuck` if no fault explains it."""
        asked_ms = self.clock.monotonic_ms()

        def too_late() -> None:
            if self._last_trouble_ms < asked_ms:
                self.fail(Anomaly("stuck", f"no response to {what}"))
            connection.drop()

        return self.timers.call_later(_PATIENCE_MS + patience_ms, too_late)

    def fail(self, error: Exception) -> None:
        """End the run, unless an injected exception is the cause; the first failure counts."""
        if self.exceptions.faults.caused(error):
            self.trace(f"an injected exception propagated: {error!r}")
            self.count("exceptions out of the broker")
        elif self._failure is None:
            process = self.service.process
            self._failure = error if process is None else process.crash(error)

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

    def trace(self, text: str) -> None:
        """Trace an event, if tracing is enabled."""
        if self._trace is not None:
            self._trace(f"{self.clock.monotonic_ms():10.2f} {text}")

    def set_speed(self, *, job_ms: float | None = None, network_ms: float | None = None) -> None:
        """Set the longest duration of a job, and the longest delay of a frame."""
        if job_ms is not None:
            self.max_job_ms = job_ms
            if self.service.process is not None:
                self.service.process.jobs.max_ms = job_ms
        if network_ms is not None:
            self.network.max_delay_ms = network_ms
