"""Turns among connections with pending work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plogd.net.run_queue import DIRECT_MAX_MS, PASS_MAX_MS, UNTIMED_MS, RunQueue
from tests.helpers.injection import Faults, When
from tests.helpers.sim.sim_ports import SimPorts


class Taker:
    """Takes turns of `cost_ms` each, until its `work` is finished."""

    def __init__(self, name: str, log: list[str], queue: RunQueue, work: int = 1) -> None:
        self.name, self.log, self.queue, self.work = name, log, queue, work
        self.on_turn: Callable[[], None] = lambda: None

    def take_turn(self) -> None:
        self.log.append(self.name)
        self.on_turn()
        self.work -= 1
        if self.work:
            self.queue.add(self)


@pytest.fixture
def ports() -> SimPorts:
    return SimPorts()


@pytest.fixture
def queue(ports: SimPorts) -> RunQueue:
    return RunQueue(ports.timers, ports.clock)


def test_turns_are_given_in_rotation(ports: SimPorts, queue: RunQueue) -> None:
    log: list[str] = []
    for name, work in (("a", 3), ("b", 1), ("c", 2)):
        queue.add(Taker(name, log, queue, work))
    assert log == [], "never inside add"
    ports.settle()
    assert log == ["a", "b", "c", "a", "c", "a"]
    assert len(queue) == 0


def test_connection_is_queued_at_most_once(ports: SimPorts, queue: RunQueue) -> None:
    log: list[str] = []
    taker = Taker("a", log, queue)
    queue.add(taker)
    queue.add(taker)
    ports.settle()
    assert log == ["a"]


def test_connection_gets_its_turn_with_the_next_one_when_setting_a_timer_failed(
    ports: SimPorts,
) -> None:
    faults, log = Faults(), list[str]()
    queue = RunQueue(faults.timers(ports.timers), ports.clock)
    faults.arm(1, When.BEFORE, MemoryError("injected"))
    with pytest.raises(MemoryError):
        queue.add(Taker("a", log, queue))
    queue.add(Taker("b", log, queue))
    ports.settle()
    assert log == ["a", "b"]


def test_discarded_connection_gets_no_turn(ports: SimPorts, queue: RunQueue) -> None:
    log: list[str] = []
    first, second = Taker("a", log, queue), Taker("b", log, queue)
    first.on_turn = lambda: queue.discard(second)
    queue.add(first)
    queue.add(second)
    ports.settle()
    assert log == ["a"]


def test_pass_ends_after_its_maximum_time(ports: SimPorts, queue: RunQueue) -> None:
    log: list[str] = []
    takers = [Taker(name, log, queue) for name in "abcd"]
    for taker in takers:
        taker.on_turn = lambda: ports.clock.advance_to(
            ports.clock.monotonic_ms() + PASS_MAX_MS / 2 + 0.1
        )
        queue.add(taker)
    ports.timers.run_next()
    assert log == ["a", "b"]
    ports.timers.run_next()
    assert log == ["a", "b", "c", "d"]


def test_exception_in_a_turn_does_not_stop_the_queue(ports: SimPorts, queue: RunQueue) -> None:
    log: list[str] = []
    first, second = Taker("a", log, queue), Taker("b", log, queue)

    def fail() -> None:
        raise ZeroDivisionError

    first.on_turn = fail
    queue.add(first)
    queue.add(second)
    with pytest.raises(ZeroDivisionError):
        ports.timers.run_next()
    ports.settle()
    assert log == ["a", "b"]


def test_queue_is_behind_when_turns_of_one_pass_last_too_long(
    ports: SimPorts, queue: RunQueue
) -> None:
    queue.spent(DIRECT_MAX_MS)
    assert not queue.is_behind
    queue.spent(0.5)
    assert queue.is_behind
    ports.settle()
    assert not queue.is_behind, "the reactor has polled all sockets again"
    queue.spent(DIRECT_MAX_MS)
    assert not queue.is_behind
    ports.settle()


def test_short_turns_set_no_timer(ports: SimPorts, queue: RunQueue) -> None:
    queue.spent(UNTIMED_MS)
    assert ports.timers.next_due_ms is None
    queue.spent(0.5)
    assert ports.timers.next_due_ms is not None
    ports.settle()
    queue.spent(UNTIMED_MS)
    assert ports.timers.next_due_ms is None, "the count has started again"


def test_turns_without_a_timer_count_until_a_pass_ends(ports: SimPorts, queue: RunQueue) -> None:
    queue.spent(UNTIMED_MS)
    ports.settle()
    queue.spent(DIRECT_MAX_MS)
    assert queue.is_behind
    ports.settle()
    assert not queue.is_behind


def test_pass_gets_its_timer_with_the_next_turn_when_setting_it_failed(ports: SimPorts) -> None:
    faults = Faults()
    queue = RunQueue(faults.timers(ports.timers), ports.clock)
    faults.arm(1, When.BEFORE, MemoryError("injected"))
    with pytest.raises(MemoryError):
        queue.spent(DIRECT_MAX_MS + 1)
    queue.spent(DIRECT_MAX_MS + 1)
    assert queue.is_behind
    ports.settle()
    assert not queue.is_behind
