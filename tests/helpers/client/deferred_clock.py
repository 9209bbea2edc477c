"""Simulated time with the interface of a reactor's clock, for a `DeferredNetwork`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plogd.ports import Clock
from tests.helpers.sim.sim_time import SimTimer, SimTimers


class DeferredCall:
    """A delayed call, with Twisted's interface."""

    def __init__(self, timer: SimTimer, due_s: float) -> None:
        self._timer = timer
        self._due_s = due_s

    def getTime(self) -> float:
        return self._due_s

    def active(self) -> bool:
        return self._timer.function is not None

    def cancel(self) -> None:
        self._timer.cancel()


class DeferredClock:
    """The part of a reactor's clock that a `DeferredNetwork` uses, on simulated timers."""

    def __init__(self, timers: SimTimers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock

    def seconds(self) -> float:
        return self._clock.monotonic_ms() / 1000

    def callLater(self, delay: float, function: Callable[..., object], *args: Any) -> DeferredCall:
        timer: SimTimer

        def run() -> None:
            timer.cancel()
            function(*args)

        timer = self._timers.call_later(delay * 1000, run)
        return DeferredCall(timer, self.seconds() + delay)
