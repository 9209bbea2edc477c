"""The simulated clock and timers: virtual time for tests and the simulator.

Nothing blocks. Time advances only in `SimTimers.advance`, which steps from one due call to the
next, so that each call sees its exact time. `SimPorts` (sim_ports.py) adds the other ports.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from plogd.fair_queue import PAUSE_MS

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


@dataclass(slots=True, eq=False)
class SimTimer:
    """A call due at `due_ms`; calls due together run in the order of their creation."""

    due_ms: float
    function: Callable[[], None] | None

    def cancel(self) -> None:
        self.function = None


class SimTimers:
    """Delayed calls on a `SimClock`."""

    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        self._numbers = itertools.count()
        # Tuples, because comparing objects took a tenth of the time of a simulation.
        self._heap: list[tuple[float, int, SimTimer]] = []

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> SimTimer:
        due_ms = self.clock.monotonic_ms() + max(0.0, delay_ms)
        timer = SimTimer(due_ms, function)
        heapq.heappush(self._heap, (due_ms, next(self._numbers), timer))
        return timer

    @property
    def next_due_ms(self) -> float | None:
        """When the next call is due, by the monotonic clock; None without any."""
        while self._heap and self._heap[0][2].function is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_next(self) -> None:
        """Advance time to the next due call and make it."""
        due_ms = self.next_due_ms
        assert due_ms is not None, "no call is scheduled"
        self.clock.advance_to(max(due_ms, self.clock.monotonic_ms()))
        function = heapq.heappop(self._heap)[2].function
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
