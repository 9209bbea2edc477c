"""ReliableTimers: calls that cannot be set immediately, and canceled calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plogd.ports import Timer
from plogd.reliable_timers import ReliableTimers
from tests.helpers.injection import Faults, When
from tests.helpers.sim.sim_ports import SimPorts, SimTimers


class _Site:
    """ReliableTimers on top of timers that can fail, with the recorded calls and reports."""

    def __init__(self) -> None:
        self.ports, self.faults = SimPorts(), Faults()
        self.called: list[tuple[str, float]] = []
        self.bugs: list[Exception] = []
        timers = self.faults.timers(self.ports.timers)
        self.timers = ReliableTimers(
            replace(self.ports.bundle(), timers=timers),
            on_bug=lambda where, error: self.bugs.append(error),
        )
        self.start_ms = self.ports.clock.monotonic_ms()

    def fail_at(self, number: int) -> None:
        self.faults.arm(self.faults.calls + number, When.BEFORE, MemoryError("injected"))

    def call_later(self, name: str, delay_ms: float) -> None:
        self.timers.call_later(delay_ms, lambda: self.note(name))

    def note(self, name: str) -> None:
        self.called.append((name, self.ports.clock.monotonic_ms() - self.start_ms))


@pytest.fixture
def site() -> _Site:
    return _Site()


def test_call_that_cannot_be_set_is_made_once_when_due(site: _Site) -> None:
    site.fail_at(1)
    site.call_later("a", 100)
    site.call_later("b", 50)
    site.ports.advance(1000)
    assert site.called == [("b", 50), ("a", 100)]
    assert site.bugs == site.faults.raised


def test_call_is_set_at_the_end_of_the_turn_when_no_other_follows(site: _Site) -> None:
    site.fail_at(1)
    with site.ports.turn:
        site.call_later("a", 100)
    assert site.ports.timers.next_due_ms == site.start_ms + 100


def test_call_is_set_with_the_next_one_when_the_end_of_turn_fails(
    site: _Site,
) -> None:
    for _ in range(2):
        site.fail_at(1)
        with site.ports.turn:
            if not site.bugs:
                site.call_later("a", 100)
                site.fail_at(1)
    assert (len(site.bugs), site.ports.timers.next_due_ms) == (2, None)
    site.ports.advance(200)
    site.faults.disarm()
    site.call_later("b", 100)
    site.ports.advance(100)
    assert site.called == [("a", 200), ("b", 300)]


def test_caller_gets_no_error_when_the_turn_cannot_be_scheduled_either(
    site: _Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Timer:
        raise MemoryError("injected")

    with monkeypatch.context() as patch:
        patch.setattr(SimTimers, "call_later", fail)
        site.call_later("a", 100)
    assert len(site.bugs) == 2
    with site.ports.turn:
        pass
    site.ports.advance(100)
    assert site.called == [("a", 100)]


@pytest.mark.parametrize("is_set", [False, True])
def test_canceled_call_is_not_made(site: _Site, is_set: bool) -> None:
    site.fail_at(1)
    with site.ports.turn:
        timer = site.timers.call_later(100, lambda: site.note("a"))
        if not is_set:
            timer.cancel()
    timer.cancel()
    site.ports.advance(1000)
    assert site.called == []
