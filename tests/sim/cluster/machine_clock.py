"""The clocks of one machine in a cluster, which drift from the time of the simulation."""

from __future__ import annotations

from tests.helpers.sim.sim_time import START_MS, SimClock

MAX_DRIFT = 1e-3
"""The largest relative error of a clock: 3.6 s in an hour."""


class MachineClock(SimClock):
    """A clock that runs `rate` times as fast as `time`, the time of the simulation."""

    def __init__(self, time: SimClock, *, rate: float, wall_error_ms: float) -> None:
        super().__init__(START_MS)
        self._time = time
        self.rate = rate
        self.jump_wall(wall_error_ms)

    def now_ms(self) -> int:
        return int(self._wall_offset_ms + self.monotonic_ms())

    def monotonic_ms(self) -> float:
        return self._time.monotonic_ms() * self.rate

    def advance_to(self, monotonic_ms: float) -> None:
        """Let time pass on all machines; never back."""
        true_ms = monotonic_ms / self.rate
        self._time.advance_to(max(true_ms, self._time.monotonic_ms()))
