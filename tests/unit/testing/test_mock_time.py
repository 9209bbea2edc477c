"""Mock time: each timer runs at its own time, jobs are awaited, periodic tasks are bounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.task import Clock, LoopingCall

from plogd.ports import Later
from plogd.testing.mock_time import PERIODIC_RUNS, MockTime

HOUR_S = 3600.0


class FakeReactor(Clock):
    """A reactor that turns on request; only `offset_s` advances its time."""

    def __init__(self) -> None:
        super().__init__()
        self.offset_s = 0.0
        self._thread_calls: list[Callable[[], Any]] = []

    def seconds(self) -> float:
        return float(self.rightNow) + self.offset_s

    def callFromThread(self, function: Callable[[], Any]) -> None:
        self._thread_calls.append(function)

    def turn(self) -> bool:
        """Run one iteration of a reactor; return whether there was any work."""
        calls, self._thread_calls = self._thread_calls, []
        for call in calls:
            call()
        due = [call for call in self.getDelayedCalls() if call.getTime() <= self.seconds()]
        self.advance(0)
        return bool(calls or due)


class Site:
    """Time over a `FakeReactor`, and the recorded times of events."""

    def __init__(self) -> None:
        self.reactor = FakeReactor()
        self.time = MockTime(self.reactor)
        self.moments: list[float] = []

    def note(self) -> None:
        self.moments.append(self.reactor.seconds())

    def turn(self) -> None:
        while self.reactor.turn():
            pass

    def advance(self, seconds: float) -> Later[None]:
        moved = self.time.advance(seconds)
        self.turn()
        return moved


@pytest.fixture
def site() -> Site:
    return Site()


def test_timers_are_called_in_order_at_their_own_times(site: Site) -> None:
    for due_s in (30.0, 10.0, 20.0, 70.0):
        site.reactor.callLater(due_s, site.note)
    assert site.advance(60).done
    assert site.moments == pytest.approx([10, 20, 30], abs=1e-3)
    assert site.reactor.seconds() == pytest.approx(60)


def test_timer_set_by_a_timer_is_called_at_its_own_time(site: Site) -> None:
    def again() -> None:
        site.note()
        site.reactor.callLater(7, again)

    again()
    site.advance(20)
    assert site.moments == pytest.approx([0, 7, 14], abs=1e-3)


def test_next_timer_waits_for_the_jobs_of_the_previous_one(site: Site) -> None:
    jobs: list[int] = []

    def submit() -> None:
        site.note()
        jobs.append(site.time.job_begun())

    site.reactor.callLater(1, submit)
    site.reactor.callLater(2, site.note)
    moved = site.advance(10)
    assert len(site.moments) == 1
    assert not moved.done
    site.time.job_ended(jobs[0])
    site.turn()
    assert len(site.moments) == 2
    assert moved.done


def test_advance_waits_for_jobs_caused_by_jobs(site: Site) -> None:
    jobs: list[int] = []
    site.reactor.callLater(10, lambda: jobs.append(site.time.job_begun()))
    moved = site.advance(10)
    for _ in range(5):
        assert not moved.done
        jobs.append(site.time.job_begun())
        site.time.job_ended(jobs[-2])
        site.turn()
    assert not moved.done
    site.time.job_ended(jobs[-1])
    site.turn()
    assert moved.done


def test_constant_jobs_of_clients_do_not_block_an_advance(site: Site) -> None:
    job = site.time.job_begun()
    site.reactor.callLater(5, site.note)
    moved = site.advance(10)
    rounds = 0
    while not moved.done and rounds < 200:
        rounds += 1
        # The next job is submitted before the last one ends.
        ended, job = job, site.time.job_begun()
        site.time.job_ended(ended)
        site.turn()
    assert moved.done
    assert site.moments == pytest.approx([5], abs=1e-3)


def test_frequent_task_runs_a_hundred_times_in_a_long_advance(site: Site) -> None:
    task = LoopingCall(site.note)
    task.clock = site.reactor
    task.start(1.0, now=False)
    site.advance(24 * HOUR_S)
    assert PERIODIC_RUNS - 1 <= len(site.moments) <= PERIODIC_RUNS + 1
    assert site.moments == sorted(site.moments)


def test_task_runs_whenever_it_is_due_in_a_short_advance(site: Site) -> None:
    task = LoopingCall(site.note)
    task.clock = site.reactor
    task.start(5.0, now=False)
    site.advance(60)
    assert site.moments == pytest.approx([5.0 * n for n in range(1, 13)], abs=1e-2)


def test_frequent_task_does_not_shift_other_timers(site: Site) -> None:
    task = LoopingCall(lambda: None)
    task.clock = site.reactor
    task.start(1.0, now=False)
    site.reactor.callLater(1234.5, site.note)
    site.advance(24 * HOUR_S)
    assert site.moments == pytest.approx([1234.5], abs=1e-3)


def test_advances_run_sequentially(site: Site) -> None:
    first, second = site.time.advance(10), site.time.advance(5)
    site.turn()
    assert first.done
    assert second.done
    assert site.reactor.seconds() == pytest.approx(15)


def test_advance_by_zero_calls_due_timers(site: Site) -> None:
    site.reactor.callLater(0, site.note)
    assert site.advance(0).done
    assert site.moments == [0]


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_advance_rejects_negative_and_infinite_times(site: Site, seconds: float) -> None:
    with pytest.raises(ValueError, match="cannot advance time"):
        site.time.advance(seconds)
