"""The ports for tests and the simulator: virtual time, jobs on command, seeded random numbers.

Nothing blocks. Time advances only in `SimTimers.advance`, which steps from one due call to the
next, so that each call sees its exact time; jobs run only on request, in lane order, with lanes in
the order of first use or chosen by a seed. `SimPorts` contains one of each and a `Turn`.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from plogd.ports import Later, Turn

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
        self._clock = clock
        self._numbers = itertools.count()
        self._heap: list[SimTimer] = []

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> SimTimer:
        due_ms = self._clock.monotonic_ms() + max(0.0, delay_ms)
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
        self._clock.advance_to(max(due_ms, self._clock.monotonic_ms()))
        function = heapq.heappop(self._heap).function
        assert function is not None
        function()

    def run_due(self) -> bool:
        """Make every call that is due now, including added ones; return whether there was any."""
        ran = False
        while (due_ms := self.next_due_ms) is not None and due_ms <= self._clock.monotonic_ms():
            self.run_next()
            ran = True
        return ran

    def advance(self, by_ms: float) -> None:
        """Let `by_ms` pass; each call that becomes due is made at its exact time."""
        until_ms = self._clock.monotonic_ms() + by_ms
        while (due_ms := self.next_due_ms) is not None and due_ms <= until_ms:
            self.run_next()
        self._clock.advance_to(until_ms)


class SimRandom:
    """Random numbers from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, length: int) -> bytes:
        return self._random.randbytes(length)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)


class SimJobs:
    """Jobs on serial lanes, run one at a time on request; with `chance`, from a random lane."""

    def __init__(self, chance: SimRandom | None = None) -> None:
        self._chance = chance
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
        """Run the first job of `lane`, or of the next lane in turn."""
        if lane is None:
            lanes = self.waiting
            assert lanes, "no job is pending"
            lane = lanes[self._chance.randrange(len(lanes)) if self._chance else 0]
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
    """A clock, its timers, jobs, random numbers and a turn: a broker's ports except files."""

    def __init__(self, seed: int = 0, *, random_job_order: bool = False) -> None:
        self.clock = SimClock()
        self.timers = SimTimers(self.clock)
        self.random = SimRandom(seed)
        self.jobs = SimJobs(self.random if random_job_order else None)
        self.turn = Turn(self.timers)

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
        self.clock.advance_to(until_ms)


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
