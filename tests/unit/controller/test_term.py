"""Term: what waits in it fails at its end, and the next term waits for its requests."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plog.errors import KafkaStorageError, NotController
from plogd.controller.term import Term
from plogd.fair_queue import SLICE, FairQueue
from plogd.metadata.store import ABSENT, Change, Conflict, Fenced, Outcome, Written
from plogd.ports import Later, ready, spawn
from tests.helpers.sim.sim_ports import SimPorts, outcome

CHANGES = [Change(key=("delete_topic", "t"), value=True, expected=ABSENT)]


class OneWrite:
    """A store whose only write waits for its outcome."""

    def __init__(self) -> None:
        self.later: Later[list[Outcome]] = Later()
        self.term: int | None = None

    def write_atomic(self, changes: Sequence[Change], term: int) -> Later[list[Outcome]]:
        assert changes == CHANGES
        self.term = term
        return self.later


class Setup:
    """A term with the epoch 7."""

    def __init__(self) -> None:
        self.store = OneWrite()
        self.ports = SimPorts()
        queue = FairQueue(self.ports.timers)
        self.term = Term(self.store, 7, queue)  # type: ignore[arg-type]  # it can only write

    def write(self) -> Later[list[Outcome]]:
        return spawn(self.term.write(CHANGES))


@pytest.mark.parametrize("result", [Written(version=3), Conflict(value=True, version=2)])
def test_write_returns_the_outcomes(result: Outcome) -> None:
    setup = Setup()
    write = setup.write()
    assert setup.store.term == 7
    setup.store.later.succeed([result])
    assert outcome(write) == [result]
    assert not setup.term.is_over


def test_fenced_write_ends_the_term() -> None:
    setup = Setup()
    write, other = setup.write(), setup.term.wait(Later())
    setup.store.later.succeed([Fenced()])
    assert setup.term.is_over
    for waiting in (write, other):
        with pytest.raises(NotController):
            outcome(waiting)
    assert setup.term.settled().done


def test_failed_write_does_not_end_the_term() -> None:
    setup = Setup()
    write = setup.write()
    setup.store.later.fail(KafkaStorageError("disk failed"))
    with pytest.raises(KafkaStorageError):
        outcome(write)
    setup.term.check()


def test_everything_that_waits_fails_at_the_end_of_the_term() -> None:
    setup = Setup()
    write = setup.write()
    work: Later[int] = Later()
    waiting = setup.term.wait(work)
    setup.term.end()
    setup.term.end()
    for later in (write, waiting):
        with pytest.raises(NotController, match="not the active controller"):
            outcome(later)
    assert setup.term.over().done
    # Outcomes that arrive later are dropped.
    work.succeed(1)
    setup.store.later.succeed([Written(version=1)])


def test_nothing_is_requested_after_the_end_of_the_term() -> None:
    setup = Setup()
    setup.term.end()
    requested: list[str] = []

    def request() -> Later[None]:
        requested.append("request")
        return ready(None)

    with pytest.raises(NotController):
        setup.term.run(request)
    with pytest.raises(NotController):
        outcome(setup.write())
    with pytest.raises(NotController):
        setup.term.wait(Later())
    assert (requested, setup.store.term) == ([], None)


@pytest.mark.parametrize("fails", [True, False])
def test_term_is_settled_when_its_requests_have_an_outcome(fails: bool) -> None:
    setup = Setup()
    setup.write().then(lambda _: None, lambda _: None)
    setup.term.wait(Later()).then(lambda _: None, lambda _: None)
    settled = setup.term.settled()
    setup.term.end()
    assert not settled.done
    if fails:
        setup.store.later.fail(KafkaStorageError("disk failed"))
    else:
        setup.store.later.succeed([Written(version=1)])
    assert settled.done


def test_request_that_completes_immediately_does_not_wait() -> None:
    setup = Setup()
    assert outcome(setup.term.run(lambda: ready(5))) == 5
    setup.term.end()
    assert setup.term.settled().done


def test_request_that_raises_leaves_nothing_behind() -> None:
    setup = Setup()

    def request() -> Later[None]:
        raise KafkaStorageError("no room")

    with pytest.raises(KafkaStorageError):
        setup.term.run(request)
    setup.term.end()
    assert setup.term.settled().done


def test_many_waits_fail_in_slices() -> None:
    setup = Setup()
    failed: list[Exception] = []

    def fail(error: Exception) -> None:
        failed.append(error)
        if len(failed) == SLICE + 1:
            raise ZeroDivisionError("a bug of one client's request")

    for _ in range(3 * SLICE):
        setup.term.wait(Later()).then(lambda _: None, fail)
    setup.term.end()
    # The next term can begin, because nothing continues in this one.
    assert setup.term.over().done
    assert len(failed) == SLICE
    with pytest.raises(ZeroDivisionError):
        setup.ports.settle()
    assert len(failed) == 3 * SLICE
    assert all(isinstance(error, NotController) for error in failed)
