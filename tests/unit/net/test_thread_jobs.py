"""Jobs on real threads, synchronized by events; no test depends on the clock."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from twisted.internet.task import Clock

from plogd.net.thread_jobs import FIRST_PAUSE_S, SWITCH_INTERVAL_S, JobsClosed, ThreadJobs
from plogd.ports import Jobs, Later, Turn
from plogd.system_clock import ReactorTimers
from tests.helpers.net_parts import Pump
from tests.helpers.sim.sim_ports import outcome


@pytest.fixture
def pump() -> Iterator[Pump]:
    pump = Pump()
    yield pump
    pump.close()


@pytest.fixture
def jobs(pump: Pump) -> Iterator[ThreadJobs]:
    before = sys.getswitchinterval()
    jobs = ThreadJobs(pump.reactor, Turn(ReactorTimers(pump.reactor)), max_threads=4)
    yield jobs
    jobs.close()
    sys.setswitchinterval(before)


def test_ports_implement_their_protocols(jobs: ThreadJobs) -> None:
    port: Jobs = jobs
    assert port is jobs
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)


def test_outcome_is_delivered_on_the_reactors_thread(jobs: ThreadJobs, pump: Pump) -> None:
    threads: list[threading.Thread] = []
    values: list[int] = []

    def on_value(value: int) -> None:
        threads.append(threading.current_thread())
        values.append(value)

    def job() -> int:
        threads.append(threading.current_thread())
        return 42

    jobs.submit("lane", job).then(on_value, lambda error: None)
    pump.until(lambda: values)
    assert values == [42]
    assert threads[0] is not threading.current_thread()
    assert threads[1] is threading.current_thread()


def test_exception_of_a_job_is_its_outcome(jobs: ThreadJobs, pump: Pump) -> None:
    later = jobs.submit("lane", lambda: 1 // 0)
    pump.until(lambda: later.done)
    with pytest.raises(ZeroDivisionError):
        outcome(later)


def test_job_that_raises_system_exit_fails_and_its_lane_continues(
    jobs: ThreadJobs, pump: Pump
) -> None:
    first = jobs.submit("lane", sys.exit)
    second = jobs.submit("lane", lambda: "still here")
    pump.until(lambda: second.done)
    with pytest.raises(RuntimeError, match="SystemExit"):
        outcome(first)
    assert outcome(second) == "still here"


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of each sleep of the reactor, which does not really sleep."""
    sleeps: list[float] = []
    # Only in this module: threads that earlier tests have left may sleep as well.
    monkeypatch.setattr("plogd.net.thread_jobs.time", SimpleNamespace(sleep=sleeps.append))
    return sleeps


def test_reactor_pauses_for_the_threads_while_a_job_runs(sleeps: list[float]) -> None:
    reactor, release, times_s = Clock(), threading.Event(), list[float]()
    reactor.addReader = reactor.removeReader = lambda reader: None
    jobs = ThreadJobs(reactor, Turn(ReactorTimers(reactor)), switch_interval_s=None)
    jobs.submit("lane", release.wait)
    for _ in range(200):
        before = len(sleeps)
        reactor.advance(FIRST_PAUSE_S)
        if len(sleeps) > before:
            times_s.append(round(reactor.seconds(), 6))
    assert times_s == [0.001, 0.003, 0.007, 0.015, 0.031, 0.063, 0.127, 0.191]
    release.set()
    jobs.close()
    reactor.advance(1)
    assert len(sleeps) == len(times_s), "no job runs"


def test_reactor_does_not_pause_when_all_jobs_are_done(
    jobs: ThreadJobs, pump: Pump, sleeps: list[float]
) -> None:
    later = jobs.submit("lane", lambda: None)
    pump.until(lambda: later.done)
    pump.until(lambda: not pump.reactor.getDelayedCalls())
    sleeps.clear()
    pump.turn()
    assert not sleeps


def _no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_job_fails_when_no_thread_can_be_started_and_the_next_succeeds(
    jobs: ThreadJobs, pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _no_thread)
        later = jobs.submit("lane", lambda: 1)
        with pytest.raises(RuntimeError, match="new thread"):
            outcome(later)
    again = jobs.submit("lane", lambda: 2)
    pump.until(lambda: again.done)
    assert outcome(again) == 2


def test_lane_waits_for_an_existing_thread_when_none_can_be_started(
    jobs: ThreadJobs, pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    first = jobs.submit("first", may_end.wait)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _no_thread)
        second = jobs.submit("second", lambda: 2)
    assert not second.done
    may_end.set()
    pump.until(lambda: second.done)
    assert outcome(first)
    assert outcome(second) == 2


def test_jobs_of_a_lane_neither_overlap_nor_overtake(jobs: ThreadJobs, pump: Pump) -> None:
    running: list[int] = []
    order: list[int] = []
    overlaps: list[int] = []

    def job(number: int) -> None:
        running.append(number)
        if len(running) > 1:
            overlaps.append(number)
        order.append(number)
        running.remove(number)

    laters = [jobs.submit("lane", lambda n=n: job(n)) for n in range(300)]  # type: ignore[misc]
    pump.until(lambda: all(later.done for later in laters))
    assert order == list(range(300))
    assert overlaps == []


def test_lanes_run_concurrently(jobs: ThreadJobs, pump: Pump) -> None:
    both_are_here = threading.Barrier(2)
    laters = [jobs.submit(lane, lambda: both_are_here.wait(60)) for lane in ("a", "b")]
    pump.until(lambda: all(later.done for later in laters))
    assert sorted(outcome(later) for later in laters) == [0, 1]


def test_empty_lane_gets_a_thread_for_its_next_job(jobs: ThreadJobs, pump: Pump) -> None:
    for number in range(50):
        later: Later[int] = jobs.submit("lane", lambda n=number: n)  # type: ignore[misc]
        pump.until(lambda later=later: later.done)  # type: ignore[misc]
        assert outcome(later) == number


def test_only_the_thread_that_became_free_last_is_woken(jobs: ThreadJobs, pump: Pump) -> None:
    all_are_here = threading.Barrier(4)
    laters = [jobs.submit(f"{n}", lambda: all_are_here.wait(60)) for n in range(4)]
    pump.until(lambda: all(later.done for later in laters))
    names: set[str] = set()
    for _ in range(50):
        later = jobs.submit("lane", lambda: names.add(threading.current_thread().name))
        pump.until(lambda later=later: later.done)  # type: ignore[misc]
    assert len(names) == 1


def test_deferred_calls_of_outcomes_run_at_the_end_of_one_turn(pump: Pump) -> None:
    turn = Turn(ReactorTimers(pump.reactor))
    jobs = ThreadJobs(pump.reactor, turn)
    told: list[str] = []

    def on_value(value: str) -> None:
        turn.defer(lambda: told.append(f"after {value}"))
        told.append(value)

    jobs.submit("lane", lambda: "this").then(on_value, lambda error: None)
    jobs.submit("lane", lambda: "that").then(on_value, lambda error: None)
    jobs.close()
    assert told == []
    pump.until(lambda: told)
    assert told == ["this", "that", "after this", "after that"]


def test_exception_in_a_callback_does_not_affect_other_jobs(jobs: ThreadJobs, pump: Pump) -> None:
    def on_value(value: int) -> None:
        raise ValueError("a bug")

    for _ in range(3):
        jobs.submit("lane", lambda: 42).then(on_value, lambda error: None)
        after = jobs.submit("lane", lambda: "still here")
        pump.until(lambda after=after: after.done)  # type: ignore[misc]
        assert outcome(after) == "still here"


def test_cancelled_job_still_runs_and_its_outcome_is_dropped(jobs: ThreadJobs, pump: Pump) -> None:
    values: list[object] = []
    ran: list[bool] = []
    later = jobs.submit("lane", lambda: ran.append(True))
    later.then(values.append, values.append)
    later.cancel()
    after = jobs.submit("lane", lambda: None)
    pump.until(lambda: after.done)
    assert ran == [True]
    assert [type(value).__name__ for value in values] == ["Cancelled"]


def test_close_waits_for_submitted_jobs_and_accepts_no_more(jobs: ThreadJobs, pump: Pump) -> None:
    may_go_on = threading.Event()
    done: list[int] = []

    def job(number: int) -> None:
        may_go_on.wait(60)
        done.append(number)

    laters = [jobs.submit("lane", lambda n=n: job(n)) for n in range(3)]  # type: ignore[misc]
    may_go_on.set()
    jobs.close()
    jobs.close()
    assert done == [0, 1, 2]
    pump.until(lambda: all(later.done for later in laters))
    with pytest.raises(JobsClosed):
        outcome(jobs.submit("lane", lambda: None))


def test_close_waits_for_queued_lanes(jobs: ThreadJobs) -> None:
    may_go_on = threading.Event()
    done: list[int] = []

    def job(number: int) -> None:
        may_go_on.wait(60)
        done.append(number)

    for number in range(12):
        jobs.submit(f"lane {number}", lambda n=number: job(n))  # type: ignore[misc]
    may_go_on.set()
    jobs.close()
    assert sorted(done) == list(range(12))
