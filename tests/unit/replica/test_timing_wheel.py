"""TimingWheel: many deadlines with a single timer."""

from __future__ import annotations

import pytest

from plogd.replica.timing_wheel import TICK_MS, TimingWheel
from tests.helpers.sim.sim_ports import SimPorts


class Waits:
    """A wheel, and the waits that were due, in order."""

    def __init__(self) -> None:
        self.ports = SimPorts()
        self.due: list[str] = []
        self.wheel: TimingWheel[str] = TimingWheel(
            self.ports.clock, self.ports.timers, self.due.append
        )


def test_wait_is_due_after_its_deadline_and_at_most_a_tick_late() -> None:
    waits = Waits()
    waits.ports.advance(3)
    waits.wheel.add("one", 100)
    waits.ports.advance(99)
    assert waits.due == []
    waits.ports.advance(1 + TICK_MS)
    assert waits.due == ["one"]
    waits.ports.advance(1000)
    assert waits.due == ["one"]


def test_waits_are_due_in_the_order_of_their_deadlines() -> None:
    waits = Waits()
    for name, timeout_ms in (("last", 300), ("first", 100), ("second", 200)):
        waits.wheel.add(name, timeout_ms)
    waits.ports.advance(1000)
    assert waits.due == ["first", "second", "last"]


def test_removed_wait_is_not_due() -> None:
    waits = Waits()
    bucket = waits.wheel.add("one", 100)
    waits.wheel.add("other", 100)
    waits.wheel.remove("one", bucket)
    waits.wheel.remove("one", bucket)
    waits.ports.advance(1000)
    assert waits.due == ["other"]
    waits.wheel.remove("other", bucket)


def test_wheel_touches_only_the_waits_of_the_due_ticks() -> None:
    waits = Waits()
    for number in range(1000):
        waits.wheel.add(f"wait {number}", 10_000 + number * TICK_MS)
    waits.ports.advance(10_000 + TICK_MS)
    assert waits.due == ["wait 0", "wait 1"]


def test_wheel_without_waits_sets_no_timer() -> None:
    waits = Waits()
    waits.wheel.add("one", 100)
    waits.ports.advance(1000)
    assert waits.ports.timers.next_due_ms is None


def test_wait_is_not_added_if_its_timer_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits()
    with monkeypatch.context() as patched:
        patched.setattr(waits.ports.timers, "call_later", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            waits.wheel.add("one", 100)
    waits.wheel.add("other", 200)
    waits.ports.advance(1000)
    assert waits.due == ["other"]
