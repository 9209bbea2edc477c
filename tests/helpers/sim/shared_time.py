"""The time that several simulated brokers share, each with its own jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tests.helpers.sim.sim_broker import SimBroker
from tests.helpers.sim.sim_time import SimTimers


class SharedTime:
    """Lets time pass for all `brokers`, and fails if one of them has reported a bug."""

    timers: SimTimers
    brokers: Mapping[int, SimBroker]
    stalled: Collection[int] = ()
    """Brokers whose disks hang: their jobs do not run."""

    def settle(self) -> None:
        """Run all work that needs no time."""
        while self.timers.run_due() or any(
            [
                broker.ports.jobs.run_all()
                for one, broker in self.brokers.items()
                if one not in self.stalled
            ]
        ):
            pass
        assert [broker.bugs for broker in self.brokers.values() if broker.bugs] == []

    def advance(self, by_ms: float) -> None:
        """Let time pass."""
        until_ms = self.timers.clock.monotonic_ms() + by_ms
        self.settle()
        while (due_ms := self.timers.next_due_ms) is not None and due_ms <= until_ms:
            self.timers.run_next()
            self.settle()
        self.timers.clock.advance_to(max(until_ms, self.timers.clock.monotonic_ms()))
