"""The ports for tests and the simulator: virtual time, jobs on command, seeded random numbers.

Nothing blocks. Jobs run only on request, in lane order, with lanes in the order of first use; the
clock and the timers are in sim_time.py. `SimPorts` contains one of each, a disk and a `Turn`. Every
test that needs a broker, or a part of one, builds it on `SimPorts`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from plogd.ports import Files, Later, Ports, Turn
from plogd.work import InPlaceWork
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_time import SimClock, SimTimers

T = TypeVar("T")


class SimRandom:
    """Random numbers from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, length: int) -> bytes:
        return self._random.randbytes(length)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)


class SimJobs:
    """Jobs on serial lanes, run one at a time on request."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Callable[[], None]]] = {}

    def submit(self, lane: str, function: Callable[[], T]) -> Later[T]:
        later: Later[T] = Later()

        def run() -> None:
            try:
                result = function()
            except Exception as error:
                later.fail(error)
            else:
                later.succeed(result)

        self._lanes.setdefault(lane, deque()).append(run)
        return later

    @property
    def waiting(self) -> list[str]:
        """The lanes with pending jobs."""
        return [lane for lane, jobs in self._lanes.items() if jobs]

    def run_one(self, lane: str | None = None) -> None:
        """Run the first job of `lane`, or of the first lane with a job."""
        if lane is None:
            lanes = self.waiting
            assert lanes, "no job is pending"
            lane = lanes[0]
        self._lanes[lane].popleft()()

    def run_all(self) -> bool:
        """Run all jobs, including those that they submit; return whether there was any."""
        ran = False
        while self.waiting:
            self.run_one()
            ran = True
        return ran

    def forget_all(self) -> None:
        """Drop all pending jobs, as the end of a process does."""
        self._lanes.clear()


class SimPorts:
    """A simulated machine: clock, timers, jobs, random numbers, disk, turn and reports."""

    def __init__(
        self,
        seed: int = 0,
        *,
        timers: SimTimers | None = None,
        jobs: SimJobs | None = None,
        files: SimFiles | None = None,
        worthwhile_bytes: int = 1 << 62,
    ) -> None:
        """`worthwhile_bytes` is that of the port `Work`: by default, recovery runs on threads."""
        self._worthwhile_bytes = worthwhile_bytes
        self.timers = timers or SimTimers(SimClock())
        self.clock = self.timers.clock
        self.random = SimRandom(seed)
        self.jobs = jobs or SimJobs()
        self.files = files or SimFiles(["/"])
        self.files.clock = self.clock
        self.turn = Turn(self.timers)
        self.reports: list[str] = []

    def bundle(self) -> Ports:
        """Return the ports in the form in which constructors take them."""
        return Ports(
            clock=self.clock,
            timers=self.timers,
            files=self.files,
            random=self.random,
            jobs=self.jobs,
            work=InPlaceWork(cast(Files, self.files), worthwhile_bytes=self._worthwhile_bytes),
            turn=self.turn,
            report=self.report,
        )

    def report(self, message: str, **fields: object) -> None:
        """Add a report to `reports`."""
        self.reports.append(message.format(**fields))

    def next_life(self, files: SimFiles, *, timers: SimTimers | None = None) -> SimPorts:
        """Return the ports of a process that starts on `files` after this one has ended."""
        self.jobs.forget_all()
        seed = self.random.randrange(1 << 30)
        return SimPorts(
            seed,
            timers=timers or SimTimers(self.clock),
            files=files,
            worthwhile_bytes=self._worthwhile_bytes,
        )

    def settle(self) -> None:
        """Run all work that needs no time."""
        while self.timers.run_due() or self.jobs.run_all():
            pass

    def advance(self, by_ms: float) -> None:
        """Let time pass; run all pending work at each time at which a timer is due."""
        until_ms = self.clock.monotonic_ms() + by_ms
        self.settle()
        while (due_ms := self.timers.next_due_ms) is not None and due_ms <= until_ms:
            self.timers.run_next()
            self.settle()
        # A pause between the turns of a large request may have ended later.
        self.clock.advance_to(max(until_ms, self.clock.monotonic_ms()))


def outcome(later: Later[T]) -> T:
    """Return the value of a completed Later; raises its error, or AssertionError if incomplete.

    Consumes it: a Later has one consumer.
    """
    assert later.done, "still waiting"
    values: list[T] = []
    errors: list[Exception] = []
    later.then(values.append, errors.append)
    if errors:
        raise errors[0]
    return values[0]


def settled(ports: SimPorts, value: Later[T] | Any) -> Any:
    """Return the outcome of `value` after all pending work; `value` if it is not a Later."""
    if not isinstance(value, Later):
        return value
    ports.settle()
    return outcome(value)
