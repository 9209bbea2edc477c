"""The real clock and timers."""

from __future__ import annotations

from twisted.internet.task import Clock

from plogd.ports import Clock as ClockPort
from plogd.ports import Timers
from plogd.system_clock import ReactorTimers, SystemClock


def test_ports_implement_their_protocols() -> None:
    clock: ClockPort = SystemClock()
    timers: Timers = ReactorTimers(Clock())
    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic_ms() <= clock.monotonic_ms()
    assert timers is not None


def test_timer_is_due_after_milliseconds() -> None:
    reactor = Clock()
    calls: list[str] = []
    ReactorTimers(reactor).call_later(1500, lambda: calls.append("due"))
    reactor.advance(1.499)
    assert calls == []
    reactor.advance(0.002)
    assert calls == ["due"]


def test_negative_delay_means_now() -> None:
    reactor = Clock()
    calls: list[str] = []
    ReactorTimers(reactor).call_later(-5, lambda: calls.append("due"))
    reactor.advance(0)
    assert calls == ["due"]


def test_timer_can_be_cancelled_early_late_and_twice() -> None:
    reactor = Clock()
    calls: list[str] = []
    timers = ReactorTimers(reactor)
    early = timers.call_later(10, lambda: calls.append("early"))
    late = timers.call_later(10, lambda: calls.append("late"))
    early.cancel()
    early.cancel()
    reactor.advance(1)
    late.cancel()
    assert calls == ["late"]
