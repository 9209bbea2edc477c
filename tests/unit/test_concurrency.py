"""Waiting for work that nobody may stop."""

from __future__ import annotations

import pytest

from plogd.concurrency import OneAtATime, shielded, within
from plogd.ports import Cancelled, Later
from tests.helpers.sim_ports import SimPorts, outcome


class TooLate(Exception):
    """The deadline passed."""


def test_a_waiter_that_gives_up_leaves_the_work_alone() -> None:
    work: Later[int] = Later()
    waiting = shielded(work)
    waiting.cancel()
    assert not work.done
    work.succeed(1)
    with pytest.raises(Cancelled):
        outcome(waiting)


def test_the_outcome_arrives_in_time() -> None:
    ports, work = SimPorts(), Later[int]()
    waiting = within(work, 100, ports.timers, TooLate)
    work.succeed(7)
    ports.advance(200)
    assert outcome(waiting) == 7


def test_a_failure_arrives_too() -> None:
    ports, work = SimPorts(), Later[int]()
    waiting = within(work, 100, ports.timers, TooLate)
    work.fail(ValueError())
    with pytest.raises(ValueError):
        outcome(waiting)


def test_after_the_deadline_the_error_counts_and_the_work_goes_on() -> None:
    ports, work = SimPorts(), Later[int]()
    waiting = within(work, 100, ports.timers, TooLate)
    ports.advance(100)
    assert not work.done
    work.succeed(7)
    with pytest.raises(TooLate):
        outcome(waiting)


def test_no_time_at_all_is_over_at_once() -> None:
    ports = SimPorts()
    waiting = within(Later[int](), -5, ports.timers, TooLate)
    ports.settle()
    with pytest.raises(TooLate):
        outcome(waiting)


def test_giving_up_takes_the_timer_along() -> None:
    ports = SimPorts()
    within(Later[int](), 100, ports.timers, TooLate).cancel()
    assert ports.timers.next_due_ms is None


def test_a_thousand_that_have_nothing_to_do_take_turns() -> None:
    line = OneAtATime()
    work: Later[None] = Later()
    order: list[int] = []

    async def slow() -> None:
        await work

    async def quick(number: int) -> None:
        order.append(number)

    first = line.run(slow)
    others = [line.run(lambda number=number: quick(number)) for number in range(1000)]
    assert order == []
    work.succeed(None)
    outcome(first)
    for other in others:
        outcome(other)
    assert order == list(range(1000))
