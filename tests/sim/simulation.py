"""The event loop of a simulated run: actors, virtual time, the steps of the clients, and failures.

`World` runs one broker in it, and `ClusterWorld` (cluster/cluster_world.py) several. Every event is
a call on the timers, executed sequentially in virtual time. The first anomaly ends the run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from plogd.ports import Later, spawn
from tests.helpers.sim.sim_files import SimCrash
from tests.helpers.sim.sim_time import SimClock, SimTimer, SimTimers
from tests.sim.admins import TopicPlan
from tests.sim.checker import Anomaly
from tests.sim.network import Connection
from tests.sim.stage import Stage

_PATIENCE_MS = 40_000.0


class Simulation(Stage):
    """A stage in virtual time. `trace` is called with a line for each notable event."""

    def __init__(
        self,
        seed: int,
        steps: int,
        plans: Iterable[TopicPlan] = (),
        *,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(plans)
        self.seed = seed
        self.steps = steps
        self.chance = random.Random(seed)
        self.clock = SimClock()
        self.timers = SimTimers(self.clock)
        self.working = True
        self.pace = 1.0
        """A factor for the pauses of the clients."""
        self._trace = trace
        self._steps_done = 0
        self._failure: Exception | None = None
        self._running: dict[str, int] = {}
        self._last_trouble_ms = 0.0

    def derive(self) -> random.Random:
        """Return a random generator for one part, independent of the other parts."""
        return random.Random(self.chance.random())

    # -- the loop -----------------------------------------------------------------------------

    def run_until(self, done: Callable[[], bool], limit_ms: float, what: str) -> None:
        """Execute events until `done`. Raises Anomaly: `stuck` after `limit_ms`."""
        deadline_ms = self.clock.monotonic_ms() + limit_ms
        while not done():
            due_ms = self.timers.next_due_ms
            if due_ms is None or due_ms > deadline_ms:
                raise Anomaly("stuck", f"waited for {what}; running: {self._running}; {self}")
            try:
                self.timers.run_next()
            except SimCrash as crash:
                self.trace(f"crash at {crash}")
                self.crashed(crash)
            self.look()
            if self._failure is not None:
                raise self._failure

    def crashed(self, crash: SimCrash) -> None:
        """End the process in whose file operation a planned crash has occurred."""
        raise NotImplementedError

    def look(self) -> None:
        """Check what an observer of the brokers can see, after each event."""
        raise NotImplementedError

    def as_anomaly(self, error: Exception) -> Exception:
        """Return the anomaly for an exception from an actor or a broker."""
        raise NotImplementedError

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
        return self.sleep(self.pace * chance.random() ** 2 * chance.choice((2, 50, 300)))

    def watch(self, connection: Connection, what: str, patience_ms: float) -> SimTimer:
        """Fail a response that is late; the run is `stuck` if no fault explains it."""
        asked_ms = self.clock.monotonic_ms()

        def too_late() -> None:
            if self._last_trouble_ms < asked_ms:
                self.fail(Anomaly("stuck", f"no response to {what}"))
            connection.drop()

        return self.timers.call_later(_PATIENCE_MS + patience_ms, too_late)

    def fail(self, error: Exception) -> None:
        """End the run; the first failure counts."""
        if self._failure is None:
            self._failure = self.as_anomaly(error)

    def trace(self, text: str) -> None:
        """Trace an event, if tracing is enabled."""
        if self._trace is not None:
            self._trace(f"{self.clock.monotonic_ms():10.2f} {text}")
