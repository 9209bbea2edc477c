"""Waiters with timeouts that do not cancel the work, and sequential operations."""

from __future__ import annotations

import pytest

from plogd.concurrency import OneAtATime, shielded, within
from plogd.ports import Cancelled, Later
from tests.helpers.sim.sim_ports import SimPorts, outcome


class TooLate(Exception):
    """The deadline passed."""


def test_cancelled_waiter_does_not_cancel_the_work() -> None:
    work: Later[int] = Later()
    waiting = shielded(work)
    waiting.cancel()
    assert not work.done
    work.succeed(1)
    with pytest.raises(Cancelled):
        outcome(waiting)


def test_outcome_arrives_before_the_timeout() -> None:
    ports, work = SimPorts(), Later[int]()
    waiting = within(work, 100, ports.timers, TooLate)
    work.succeed(7)
    ports.advance(200)
    assert outcome(waiting) == 7


def test_failure_arrives_before_the_timeout() -> None:
    ports, work = SimPorts(), Later[int]()
    waiting = within(work, 100, ports.timers, TooLate)
    work.fail(ValueError())
    with pytest.raises(ValueError):
        outcome(waiting)


def test_timeout_fails_the_waiter_and_the_work_continues() -> None:
    ports, work = SimPorts(), Later[int]()
    waiting = within(work, 100, ports.timers, TooLate)
    ports.advance(100)
    assert not work.done
    work.succeed(7)
    with pytest.raises(TooLate):
        outcome(waiting)


def test_timeout_of_zero_expires_immediately() -> None:
    ports = SimPorts()
    waiting = within(Later[int](), -5, ports.timers, TooLate)
    ports.settle()
    with pytest.raises(TooLate):
        outcome(waiting)


def test_cancelled_waiter_leaves_no_timer() -> None:
    ports = SimPorts()
    within(Later[int](), 100, ports.timers, TooLate).cancel()
    assert ports.timers.next_due_ms is None


def test_thousand_operations_without_work_do_not_exhaust_the_stack() -> None:
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


class TestCancelledOperations:
    """`run_unless_cancelled` drops operations whose clients have given up."""

    def test_operation_that_has_not_begun_is_dropped(self) -> None:
        line = OneAtATime()
        work: Later[None] = Later()
        begun: list[str] = []

        async def slow() -> None:
            begun.append("slow")
            await work

        async def quick(name: str) -> str:
            begun.append(name)
            return name

        first = line.run_unless_cancelled(slow)
        second = line.run_unless_cancelled(lambda: quick("second"))
        third = line.run_unless_cancelled(lambda: quick("third"))
        second.cancel()
        assert len(line._waiting) == 1
        first.cancel()  # It has begun, so it continues.
        assert not work.done
        work.succeed(None)
        assert outcome(third) == "third"
        assert begun == ["slow", "third"]
        assert outcome(line.run(lambda: quick("last"))) == "last"

    def test_cancelled_operation_that_was_granted_its_turn_passes_it_on(self) -> None:
        """The outcome of one operation leads to the cancellation of the next one."""
        line = OneAtATime()
        work: Later[None] = Later()
        begun: list[str] = []

        async def slow() -> None:
            await work

        async def quick(name: str) -> str:
            begun.append(name)
            return name

        first = line.run(slow)
        second, third, fourth = [
            line.run_unless_cancelled(lambda name=name: quick(name))
            for name in ("second", "third", "fourth")
        ]
        second.then(lambda _: third.cancel(), lambda _: None)
        work.succeed(None)
        outcome(first)
        assert outcome(fourth) == "fourth"
        assert begun == ["second", "fourth"]
        assert outcome(line.run(lambda: quick("last"))) == "last"
