"""Waiters for one outcome: all receive it, and those that give up are removed."""

from __future__ import annotations

import pytest

from plogd.ports import Cancelled
from plogd.waiters import Waiters
from tests.helpers.sim.sim_ports import SimPorts, outcome


def test_all_waiters_receive_the_outcome() -> None:
    waiters: Waiters[int] = Waiters()
    waiting = [waiters.wait() for _ in range(3)]
    waiters.succeed(7)
    assert [outcome(one) for one in waiting] == [7, 7, 7]
    assert len(waiters) == 0
    failing = waiters.wait()
    waiters.fail(KeyError("no"))
    with pytest.raises(KeyError):
        outcome(failing)


def test_waiter_that_gives_up_is_removed_and_the_last_one_abandons_the_work() -> None:
    abandoned: list[int] = []
    waiters: Waiters[int] = Waiters(lambda: abandoned.append(len(waiters)))
    one, other = waiters.wait(), waiters.wait()
    one.cancel()
    assert (len(waiters), abandoned) == (1, [])
    other.cancel()
    assert (len(waiters), abandoned) == (0, [0])
    with pytest.raises(Cancelled):
        outcome(one)


def test_waiter_that_times_out_is_removed_with_its_error() -> None:
    ports = SimPorts()
    waiters: Waiters[int] = Waiters()
    short = waiters.wait_until(100, ports.timers, lambda: TimeoutError("too late"))
    long = waiters.wait_until(300, ports.timers, lambda: TimeoutError("too late"))
    ports.advance(200)
    assert len(waiters) == 1
    with pytest.raises(TimeoutError):
        outcome(short)
    waiters.succeed(1)
    assert outcome(long) == 1
    assert ports.timers.next_due_ms is None, "no timer is left"


def test_waiter_that_gives_up_leaves_no_timer() -> None:
    ports = SimPorts()
    waiters: Waiters[int] = Waiters()
    waiters.wait_until(100, ports.timers, lambda: TimeoutError("too late")).cancel()
    assert ports.timers.next_due_ms is None


def test_waiter_cancelled_during_delivery_abandons_nothing() -> None:
    abandoned: list[bool] = []
    waiters: Waiters[int] = Waiters(lambda: abandoned.append(True))
    first, second = waiters.wait(), waiters.wait()
    first.then(lambda _: second.cancel(), lambda _: None)
    waiters.succeed(1)
    assert abandoned == []
