"""The timers of one process in a cluster: they can be paused, as by SIGSTOP, and end with it."""

from __future__ import annotations

from collections.abc import Callable

from tests.helpers.sim.sim_time import LifeTimers, SimTimer, SimTimers
from tests.sim.cluster.machine_clock import MachineClock


class _Call:
    """A delayed call, which can be cancelled even while the process is paused."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function: Callable[[], None] | None = function
        self.timer: SimTimer | None = None

    def cancel(self) -> None:
        self.function = None
        if self.timer is not None:
            self.timer.cancel()


class MachineTimers(LifeTimers):
    """The timers of a process on a machine with this `clock`.

    Everything that happens to the process is a call on them, so that nothing happens to a process
    that is paused or has ended. `on_call` is called before each call.
    """

    def __init__(
        self,
        world: SimTimers,
        clock: MachineClock,
        *,
        on_error: Callable[[Exception], None],
        on_call: Callable[[], None],
    ) -> None:
        super().__init__(world, on_error)
        self._machine_clock = clock
        self._on_call = on_call
        self._held: list[_Call] = []
        self.is_paused = False

    # A call that is held back needs another way to be cancelled than the timers of the world have.
    def call_later(  # type: ignore[override]
        self, delay_ms: float, function: Callable[[], None]
    ) -> _Call:
        call = _Call(function)
        delay_ms /= self._machine_clock.rate
        call.timer = self._world.call_later(delay_ms, lambda: self._make(call))
        return call

    def soon(self, function: Callable[[], None]) -> None:
        """Call `function` at this time, after the calls that are already due."""
        self.call_later(0, function)

    def _make(self, call: _Call) -> None:
        if self.is_paused:
            self._held.append(call)
        elif call.function is not None and self.is_alive:
            self._on_call()
            self._run(call.function)

    def pause(self) -> None:
        """Hold back all calls."""
        self.is_paused = True

    def resume(self) -> None:
        """Make the calls that were held back, in their order, and all later ones in time."""
        self.is_paused = False
        held, self._held = self._held, []
        for call in held:
            call.timer = self._world.call_later(0, lambda call=call: self._make(call))
