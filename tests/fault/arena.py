"""The simulator's clients and checkers, run against a real broker process in real time.

`Arena` replaces the simulator's `World` (tests/sim/world.py): producers, consumers, admins and
group members are the same code, every response goes to the same `History`, and the guarantees are
those of docs/reliability.md. The test decides what happens to the process or its disk: between
calls of `run_for` it calls `kill`, `restart` and others.

One thread runs all clients, so their history is totally ordered. A seed determines the clients'
random choices but not their timing, so a failure reports its seed but may not be reproducible.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from plogd.ports import Later, spawn
from plogd.testing.broker_process import BrokerFailed, BrokerProcess
from tests.fault.sockets import RealClock, SocketConnection, SocketNetwork
from tests.helpers.sim.sim_time import SimTimer, SimTimers
from tests.sim.admins import Founder, Remaker, TopicPlan
from tests.sim.checker import Anomaly, History
from tests.sim.client import Client
from tests.sim.consumers import Consumer
from tests.sim.final import FinalReader, check_log, check_retention
from tests.sim.group_history import GroupHistory
from tests.sim.group_plan import GroupPlan, make_groups
from tests.sim.members import Member
from tests.sim.outsiders import FinalOffsets, Outsider
from tests.sim.plan import REMADE_TOPICS
from tests.sim.producers import IdempotentProducer, PlainProducer
from tests.sim.stage import Stage
from tests.sim.topics import Topics

SETTINGS = {
    # log.segment.bytes cannot be a few hundred bytes; rolling by time keeps segments small.
    "log.roll.ms": "150",
    "log.index.interval.bytes": "500",
    "log.segment.delete.delay.ms": "50",
    "log.retention.check.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "offsets.topic.num.partitions": "3",
    "group.min.session.timeout.ms": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""Makes rolling, sealing, deletion and checkpoints frequent."""

TOPICS = (
    TopicPlan("kept", 3, {"retention.ms": "-1"}),
    TopicPlan("packed", 1, {"retention.ms": "-1", "compression.type": "zstd"}),
    TopicPlan("stamped", 1, {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}),
    TopicPlan("timed", 2, {"retention.ms": "500"}),
    TopicPlan("sized", 2, {"retention.bytes": "40000"}),
)
KEPT_TOPICS = ("kept", "packed", "stamped")
"""The topics without retention."""
_SEED_VARIABLE = "PLOG_FAULT_SEED"
_PATIENCE_MS = 40_000.0
_LIMIT_MS = 120_000.0
_MAX_WAIT_MS = 20.0
_MAX_PAUSE_MS = 4.0
_SESSION_MS = 1_000


class Lives:
    """The state of the broker process that the clients need; the first process is life 1."""

    def __init__(self) -> None:
        self.life_number = 1
        self.reloads = 0
        """How often a coordinator has failed to write and has reloaded, in all lives."""
        self.is_serving = True
        self.has_met_faults = False
        """The disk had faults in this life, or the broker is stopping: errors are expected."""
        self.has_failed_disk = False

    @property
    def coordinator_life(self) -> int:
        """The number of the coordinators' current life; their state may be lost at its end."""
        return self.life_number + self.reloads


class Arena(Stage):
    """A real broker with the simulator's clients. `seed` determines what the clients do.

    They pause for up to `max_pause_ms` between two actions.
    """

    def __init__(
        self,
        broker: BrokerProcess,
        seed: int,
        *,
        groups: int = 6,
        topics: Sequence[TopicPlan] = TOPICS,
        max_pause_ms: float = _MAX_PAUSE_MS,
    ) -> None:
        super().__init__(topics)
        self._max_pause_ms = max_pause_ms
        self.broker = broker
        self.seed = seed
        self.chance = random.Random(seed)
        self.clock = RealClock()
        self.timers = SimTimers(self.clock)  # type: ignore[arg-type]
        self.network = SocketNetwork(
            self.clock, lambda: self.broker.bootstrap_servers, self._count_reloads
        )
        self._read_log_bytes = 0
        self.history = History()
        self.history.compacted = {
            plan.name: plan.delete_retention_ms for plan in self.plans if plan.is_compacted
        }
        self.topics = Topics()
        self.service = Lives()
        self.groups = GroupHistory(self.clock.monotonic_ms)
        self.group_plans: list[GroupPlan] = []
        if groups:
            self._plan_groups(groups)
        self.working = True
        self._failure: Exception | None = None
        self._running: Counter[str] = Counter()
        self._last_trouble_ms = 0.0
        self._began_ms = self.clock.monotonic_ms()

    def _plan_groups(self, members: int) -> None:
        self.group_plans, topic = make_groups(random.Random(self.seed), members)
        self.plans.append(topic)
        for plan in self.group_plans:
            plan.view = self.groups.view(plan.name)
            plan.session_timeout_ms = plan.rebalance_timeout_ms = _SESSION_MS

    # -- the run ------------------------------------------------------------------------------

    def found(self) -> None:
        """Create the topics."""
        founder = Founder(self, "founder", self.plans)  # type: ignore[arg-type]
        self.start(founder.run(), "founder")
        self.run_until(lambda: not self._running, "the topics")

    def start_clients(self, *, plain: int = 4, idempotent: int = 4, consumers: int = 4) -> None:
        """Start the clients."""
        world: Any = self
        chance = self.chance
        clients: list[Client] = [PlainProducer(world, f"p{n}") for n in range(plain)]
        partitions = [(plan.name, n) for plan in self.plans for n in range(plan.partitions)]
        chosen = chance.sample(partitions, idempotent)
        # Without this, one seed in two hundred fills no topic that keeps its records.
        if chosen and not any(name in KEPT_TOPICS for name, _ in chosen):
            chosen[0] = self.plans[0].name, 0
        for number, (name, partition) in enumerate(chosen):
            clients.append(IdempotentProducer(world, f"i{number}", name, partition))
        clients += [Consumer(world, f"c{n}") for n in range(consumers)]
        clients.append(Remaker(world, "remaker", REMADE_TOPICS))
        for plan in self.group_plans:
            clients.append(Outsider(world, f"{plan.name}.outsider", plan))
            clients += [
                Member(world, f"{plan.name}.m{number}", plan, instance)
                for number, instance in enumerate(plan.instances)
            ]
        for client in clients:
            self.start(client.run(), client.name)

    def run_for(self, duration_ms: float) -> None:
        """Run the clients for `duration_ms`. Raises Anomaly."""
        end_ms = self.clock.monotonic_ms() + duration_ms
        while (left_ms := end_ms - self.clock.monotonic_ms()) > 0:
            self._turn(left_ms)

    def run_until(self, done: Callable[[], bool], what: str, limit_ms: float = _LIMIT_MS) -> None:
        """Run the clients until `done` returns True. Raises Anomaly, also after `limit_ms`."""
        end_ms = self.clock.monotonic_ms() + limit_ms
        while not done():
            if self.clock.monotonic_ms() > end_ms:
                groups = "; ".join(str(plan) for plan in self.group_plans if plan.present)
                raise Anomaly(
                    "stuck", f"waited for {what}; running: {dict(self._running)}; {groups}"
                )
            self._turn(_MAX_WAIT_MS)

    def run_until_acknowledged(self, records: int = 1) -> None:
        """Run the clients until `records` more records are acknowledged."""
        wanted = self.history.acknowledged_count + records
        self.run_until(lambda: self.history.acknowledged_count >= wanted, "acknowledged records")

    def finish(self) -> None:
        """Stop the clients, and check all data against the history before and after a restart.

        Raises Anomaly.
        """
        self.working = False
        self.run_until(lambda: not self._running, "the last responses")
        before = self.read_everything()
        self.restart()
        after = self.read_everything()
        for assigned, log in before.logs.items():
            again = after.logs.get(assigned)
            if again is None or again.end_offset != log.end_offset:
                raise Anomaly(
                    "lost-write",
                    f"{assigned} ended at {log.end_offset}, after the restart: {again}",
                )

    def read_everything(self) -> FinalReader:
        """Read all data and check it against the history. Raises Anomaly."""
        world: Any = self
        reader = FinalReader(world, "final")
        self.start(reader.run(), reader.name)
        for plan in self.group_plans:
            if plan.is_founded():
                final = FinalOffsets(world, f"{plan.name}.final", plan)
                self.start(final.run(), "final offsets")
        self.run_until(lambda: not self._running, "the final read")
        for assigned, log in reader.logs.items():
            check_log(self.history, assigned.key, log, now_ms=self.clock.now_ms())
            check_retention(world, assigned, log, largest_now_ms=self.clock.now_ms())
        missing = set(self.history.partitions) - {assigned.key for assigned in reader.logs}
        kept = {
            topic.topic_id for topic in self.topics.by_id.values() if not topic.delete_requested
        }
        unreadable = [self.history.partitions[key].name for key in missing if key.topic_id in kept]
        if unreadable:
            raise Anomaly(
                "lost-topic", f"partitions in the history that cannot be read: {unreadable}"
            )
        return reader

    def summary(self) -> str:
        """Return the number of operations so far, to print."""
        return (
            f"seed {self.seed}: life {self.service.life_number}, "
            f"{self.history.acknowledged_count} records acknowledged, "
            f"{self.history.polled_count} read, {self.groups.committed_count} commits, "
            f"{dict(self.counts)}, {(self.clock.monotonic_ms() - self._began_ms) / 1000:.1f} s"
        )

    def close(self) -> None:
        """Close all connections."""
        self.network.close()

    # -- faults of the broker -----------------------------------------------------------------

    def kill(self) -> None:
        """Kill the broker with SIGKILL. The next life begins with the next start."""
        self.broker.kill()
        self.end_life()

    def end_life(self) -> None:
        """Close the connections of a process that has ended, and count a new life."""
        self.service.is_serving = False
        self.network.drain()
        self._look()
        self.service.life_number += 1

    def start_broker(self, *, kill_after_ms: float | None = None) -> bool:
        """Start the broker while clients try to connect; return False if it was killed first.

        Raises BrokerFailed if it does not start.
        """
        failures: list[BrokerFailed] = []

        def start() -> None:
            try:
                self.broker.start()
            except BrokerFailed as failure:
                failures.append(failure)

        starting = threading.Thread(target=start)
        starting.start()
        if kill_after_ms is not None:
            self.run_until(lambda: self.broker.is_running or not starting.is_alive(), "a process")
            self._run_while(starting.is_alive, kill_after_ms)
            if starting.is_alive():
                os.kill(self.broker.pid, signal.SIGKILL)
        self._run_while(starting.is_alive, _LIMIT_MS)
        starting.join()
        if kill_after_ms is not None and (failures or not self.broker.is_running):
            self.end_life()
            return False
        if failures:
            raise failures[0]
        self.service.is_serving = True
        self.service.has_met_faults = bool(self._troubles)
        return True

    def stop_broker(self) -> None:
        """Stop the broker with SIGTERM under load. Raises BrokerFailed if it was not clean."""
        self.service.is_serving = False
        self.service.has_met_faults = True  # Waiting members receive errors.
        failures: list[BrokerFailed] = []

        def stop() -> None:
            try:
                self.broker.stop()
            except BrokerFailed as failure:
                failures.append(failure)

        stopping = threading.Thread(target=stop)
        stopping.start()
        self._run_while(stopping.is_alive, _LIMIT_MS)
        stopping.join()
        self.end_life()
        if failures:
            raise failures[0]

    def restart(self) -> None:
        """Stop the broker cleanly and start it."""
        self.stop_broker()
        self.start_broker()

    def _run_while(self, condition: Callable[[], bool], limit_ms: float) -> None:
        end_ms = self.clock.monotonic_ms() + limit_ms
        while condition() and self.clock.monotonic_ms() < end_ms:
            self._turn(min(_MAX_WAIT_MS, end_ms - self.clock.monotonic_ms()))

    def _turn(self, wait_ms: float) -> None:
        due_ms = self.timers.next_due_ms
        now_ms = self.clock.monotonic_ms()
        self.network.turn(min(wait_ms, _MAX_WAIT_MS if due_ms is None else due_ms - now_ms))
        self.timers.run_due()
        self._look()

    def _look(self) -> None:
        if self._troubles or not self.service.is_serving:
            self._last_trouble_ms = self.clock.monotonic_ms()
        if self._failure is not None:
            raise self._failure

    def _count_reloads(self) -> None:
        """Begin a new life of the coordinators if one has reloaded, as the simulator does.

        The broker logs the reload before it sends a response from the reloaded state. Responses
        from the state before it, which was lost, are dropped with all connections.
        """
        path = self.broker.log_path
        size_bytes = path.stat().st_size
        if size_bytes == self._read_log_bytes:
            return
        with path.open("rb") as log:
            log.seek(self._read_log_bytes)
            new = log.read(size_bytes - self._read_log_bytes)
        # The rest of a line that has not been written completely is read the next time.
        self._read_log_bytes += new.rfind(b"\n") + 1
        reloads = new[: new.rfind(b"\n") + 1].count(b" and will reload in ")
        if reloads:
            self.service.reloads += reloads
            self.network.drop_all()

    # -- services for clients -----------------------------------------------------------------

    def start(self, coroutine: Coroutine[Later[Any], Any, None], name: str) -> None:
        """Run a client's coroutine; an exception ends the run."""
        self._running[name] += 1

        def ended(error: Exception | None) -> None:
            self._running[name] -= 1
            if not self._running[name]:
                del self._running[name]
            if error is not None:
                self.fail(error)

        spawn(coroutine).then(lambda _: ended(None), ended)

    def sleep(self, delay_ms: float) -> Later[None]:
        """Return a Later that completes after `delay_ms`."""
        later: Later[None] = Later()
        self.timers.call_later(delay_ms, lambda: later.succeed(None))
        return later

    def pause(self, chance: random.Random) -> Later[None]:
        """Return a short random wait between two actions of a client."""
        return self.sleep(chance.random() ** 2 * self._max_pause_ms)

    def watch(self, connection: SocketConnection, what: str, patience_ms: float) -> SimTimer:
        """Drop the connection if no response arrives; report `stuck` unless a fault explains it."""
        sent_ms = self.clock.monotonic_ms()

        def time_out() -> None:
            if self._last_trouble_ms < sent_ms:
                self.fail(Anomaly("stuck", f"no response to {what}"))
            connection.drop()

        return self.timers.call_later(_PATIENCE_MS + patience_ms, time_out)

    def fail(self, error: Exception) -> None:
        """End the run; the first failure counts."""
        if self._failure is None:
            self._failure = error

    def trace(self, text: str) -> None:
        """Ignore `text`: the arena keeps no trace."""

    @contextmanager
    def trouble(self) -> Iterator[None]:
        """Expect errors within the block and, unlike the simulator, for the rest of this life."""
        self.service.has_met_faults = True
        with super().trouble():
            yield


@contextmanager
def arena_of(broker: BrokerProcess, seed: int, **more: Any) -> Iterator[Arena]:
    """Yield an arena for a running broker; print the seed and finally the summary."""
    arena = Arena(broker, seed, **more)
    print(f"seed {seed}")
    try:
        yield arena
    finally:
        print(arena.summary())
        arena.close()
        if broker.is_running:
            broker.kill()


def any_seed() -> int:
    """Return the seed from the environment, or a random one."""
    return int(os.environ.get(_SEED_VARIABLE, random.SystemRandom().randrange(1 << 32)))
