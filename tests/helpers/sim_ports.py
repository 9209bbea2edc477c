"""The ports for tests and the simulator: virtual time, jobs on command, seeded random numbers.

Nothing blocks. Time advances only in `SimTimers.advance`, which steps from one due call to the
next, so that each call sees its exact time; jobs run only on request, in lane order, with lanes in
the order of first use. `SimPorts` contains one of each, a disk and a `Turn`. Every test that needs
a broker, or a part of one, builds it on `SimPorts`.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from plogd.fair_queue import PAUSE_MS
from plogd.ports import Later, Ports, Turn
from tests.helpers.sim_files import SimFiles

T = TypeVar("T")

START_MS = 1_700_000_000_000
"""The initial time of the wall clock, in 2023."""


class SimClock:
    """Both clocks; `jump_wall` sets only the wall clock, as an operator may."""

    def __init__(self, wall_ms: int = START_MS) -> None:
        self._wall_offset_ms = float(wall_ms)
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        return int(self._wall_offset_ms + self._monotonic_ms)

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance_to(self, monotonic_ms: float) -> None:
        """Advance both clocks to the time `monotonic_ms`; never back."""
        assert monotonic_ms >= self._monotonic_ms
        self._monotonic_ms = monotonic_ms

    def jump_wall(self, by_ms: float) -> None:
        """Set the wall clock; the monotonic clock is unaffected."""
        self._wall_offset_ms += by_ms


@dataclass(order=True, slots=True)
class SimTimer:
    """A call due at `due_ms`; calls due together run in the order of their creation."""

    due_ms: float
    number: int
    function: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        self.function = None


class SimTimers:
    """Delayed calls on a `SimClock`."""

    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        self._numbers = itertools.count()
        self._heap: list[SimTimer] = []

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> SimTimer:
        due_ms = self.clock.monotonic_ms() + max(0.0, delay_ms)
        timer = SimTimer(due_ms, next(self._numbers), function)
        heapq.heappush(self._heap, timer)
        return timer

    @property
    def next_due_ms(self) -> float | None:
        """When the next call is due, by the monotonic clock; None without any."""
        while self._heap and self._heap[0].function is None:
            heapq.heappop(self._heap)
        return self._heap[0].due_ms if self._heap else None

    def run_next(self) -> None:
        """Advance time to the next due call and make it."""
        due_ms = self.next_due_ms
        assert due_ms is not None, "no call is scheduled"
        self.clock.advance_to(max(due_ms, self.clock.monotonic_ms()))
        function = heapq.heappop(self._heap).function
        assert function is not None
        function()

    def run_due(self) -> bool:
        """Make every call that is due now, including added ones; return whether there was any.

        A call that waits only for a pause between the turns of a large request counts as due.
        """
        ran = False
        while (due_ms := self.next_due_ms) is not None and due_ms <= self._soon_ms():
            self.run_next()
            ran = True
        return ran

    def _soon_ms(self) -> float:
        return self.clock.monotonic_ms() + PAUSE_MS

    def advance(self, by_ms: float) -> None:
        """Let `by_ms` pass; each call that becomes due is made at its exact time."""
        until_ms = self.clock.monotonic_ms() + by_ms
        while (due_ms := self.next_due_ms) is not None and due_ms <= until_ms:
            self.run_next()
        self.clock.advance_to(until_ms)


class LifeTimers(SimTimers):
    """The timers of one process on those of its world; `end` drops the calls that are pending.

    Without `on_error`, an exception of a call is raised by the method that advances time.
    """

    def __init__(
        self, world: SimTimers, on_error: Callable[[Exception], None] | None = None
    ) -> None:
        super().__init__(world.clock)
        self._world = world
        self._heap = world._heap
        self._on_error = on_error
        self.is_alive = True

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> SimTimer:
        return self._world.call_later(delay_ms, lambda: self._run(function))

    def _run(self, function: Callable[[], None]) -> None:
        if not self.is_alive:
            return
        try:
            function()
        except Exception as error:
            if self._on_error is None:
                raise
            self._on_error(error)

    def end(self) -> None:
        """End the process."""
        self.is_alive = False


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
    ) -> None:
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
        return SimPorts(seed, timers=timers or SimTimers(self.clock), files=files)

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
