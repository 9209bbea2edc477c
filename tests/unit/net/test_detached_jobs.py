"""Jobs that may hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from plogd.net.detached_jobs import DetachedJobs, StillRunning
from plogd.ports import Later
from tests.helpers.net_parts import Pump


@pytest.fixture
def pump() -> Iterator[Pump]:
    earlier = set(threading.enumerate())
    made = Pump()
    yield made
    for thread in set(threading.enumerate()) - earlier:
        thread.join()  # It may be about to wake the reactor.
    made.close()


class Outcome:
    """Records the outcome of a job."""

    def __init__(self, later: Later[object]) -> None:
        self.values: list[object] = []
        self.errors: list[Exception] = []
        later.then(self.values.append, self.errors.append)


def test_outcomes_are_delivered_on_the_reactors_thread(pump: Pump) -> None:
    jobs = DetachedJobs(pump.reactor)
    threads: list[int] = []

    def fail() -> None:
        threads.append(threading.get_ident())
        raise KeyError("x")

    good, bad = Outcome(jobs.run("a", lambda: 42, 10)), Outcome(jobs.run("b", fail, 10))
    pump.until(lambda: good.values and bad.errors)
    assert good.values == [42]
    assert isinstance(bad.errors[0], KeyError)
    assert threads != [threading.get_ident()]
    assert not pump.reactor.getDelayedCalls()


def test_job_that_hangs_fails_and_is_not_started_twice(pump: Pump) -> None:
    jobs = DetachedJobs(pump.reactor)
    hangs = threading.Event()
    first = Outcome(jobs.run("reading", hangs.wait, 0.01))
    pump.until(lambda: first.errors)
    assert isinstance(first.errors[0], TimeoutError)
    assert "reading did not finish within 0.01 s" in str(first.errors[0])
    second = Outcome(jobs.run("reading", lambda: 1, 10))
    assert isinstance(second.errors[0], StillRunning)
    other = Outcome(jobs.run("other", lambda: 1, 10))
    pump.until(lambda: other.values)
    hangs.set()
    pump.until(lambda: not jobs._lanes["reading"].is_running)
    third = Outcome(jobs.run("reading", lambda: 3, 10))
    pump.until(lambda: third.values)
    assert first.values == [], "too late"


def test_jobs_of_one_name_run_sequentially(pump: Pump) -> None:
    """A second reload may find newer files than the first."""
    jobs = DetachedJobs(pump.reactor)
    may_end, order = threading.Event(), []

    def job(number: int) -> None:
        order.append(number)
        may_end.wait()

    outcomes = [Outcome(jobs.run("reading", partial(job, n), 10)) for n in range(3)]
    pump.until(lambda: order)
    assert order == [0]
    may_end.set()
    pump.until(lambda: all(outcome.values for outcome in outcomes))
    assert order == [0, 1, 2]


def test_jobs_that_wait_for_one_that_hangs_fail_with_it(pump: Pump) -> None:
    jobs = DetachedJobs(pump.reactor)
    hangs = threading.Event()
    outcomes = [Outcome(jobs.run("reading", hangs.wait, 0.01)) for _ in range(2)]
    pump.until(lambda: outcomes[1].errors)
    assert isinstance(outcomes[0].errors[0], TimeoutError)
    assert isinstance(outcomes[1].errors[0], StillRunning)
    hangs.set()
    pump.until(lambda: not jobs._lanes["reading"].is_running)


def test_close_does_not_wait_for_jobs_that_hang(pump: Pump) -> None:
    jobs = DetachedJobs(pump.reactor)
    hangs = threading.Event()
    outcome = Outcome(jobs.run("reading", hangs.wait, 10))
    jobs.close()
    assert outcome.values == outcome.errors == []
    hangs.set()
    for call in pump.reactor.getDelayedCalls():
        call.cancel()
