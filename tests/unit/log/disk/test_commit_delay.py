"""When a sync round waits, and for how long (rule R9, decision 0008)."""

from __future__ import annotations

import pytest

from plogd.log.disk.commit_delay import CommitDelay
from tests.helpers.sim.sim_ports import SimPorts


class Rounds:
    """Rounds without duration, begun and ended as by `SyncRounds`."""

    def __init__(self) -> None:
        self.ports = SimPorts()
        self.sizes: list[int] = []
        """The number of requests in each round that has begun."""
        self._asked = 0
        self._waits = False
        self.gathering = CommitDelay(self.ports.clock, self.ports.timers, self._begin)

    def come(self, count: int = 1) -> bool:
        """Request `count` syncs; return whether a round has begun."""
        before = len(self.sizes)
        for _ in range(count):
            self._asked += 1
            self.gathering.sync_requested()
        if self._asked and not self._waits:
            self._start()
        return len(self.sizes) > before

    def come_during_the_last_round(self) -> None:
        """Request a sync before the round is answered."""
        self._asked += 1
        self.gathering.sync_requested()
        self.gathering.round_answered()
        self._start()

    def _start(self) -> None:
        self._waits = self.gathering.must_wait()
        if not self._waits:
            self._begin()

    def _begin(self) -> None:
        self._waits = False
        self.gathering.round_begins()
        self.sizes.append(self._asked)
        self._asked = 0
        self.gathering.round_answered()

    def learn_to_wait(self) -> None:
        """Begin rounds with too few requests until one waits; then send the rest."""
        for _ in range(300):
            self.come(4)
            if not self.come(1):
                self.come(3)
                assert self.sizes[-1] == 4
                return
        raise AssertionError("no round waits")


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


def test_first_rounds_do_not_wait(rounds: Rounds) -> None:
    rounds.come(5)
    assert rounds.come()


def test_round_waits_for_all_requests_that_the_last_one_answered(rounds: Rounds) -> None:
    rounds.learn_to_wait()
    assert not rounds.come(3)
    assert rounds.come()
    assert rounds.sizes[-1] == 4


def test_requests_during_a_round_are_expected_again() -> None:
    """Otherwise two halves of a client's requests would alternate forever."""
    rounds = Rounds()
    rounds.learn_to_wait()
    rounds.come(4)
    rounds.come_during_the_last_round()
    assert not rounds.come(3)
    assert rounds.come()
    assert rounds.sizes[-1] == 5


def test_one_request_in_flight_never_waits(rounds: Rounds) -> None:
    rounds.learn_to_wait()
    rounds.come(4)
    rounds.come()
    rounds.ports.advance(1.0)
    for _ in range(300):
        assert rounds.come()
        assert rounds.sizes[-1] == 1


def test_wait_ends_when_no_request_arrives(rounds: Rounds) -> None:
    rounds.learn_to_wait()
    rounds.come(4)
    assert not rounds.come()
    rounds.ports.advance(0.99)
    assert rounds.sizes[-1] == 4
    rounds.ports.advance(0.01)
    assert rounds.sizes[-1] == 1


def test_wait_continues_while_requests_arrive(rounds: Rounds) -> None:
    rounds.learn_to_wait()
    rounds.come(60)
    assert not rounds.come()
    rounds.ports.advance(0.9)
    assert not rounds.come()
    rounds.ports.advance(0.9)
    assert rounds.sizes[-1] == 60
    assert rounds.come(58)


def test_wait_ends_when_it_exceeds_the_expected_time(rounds: Rounds) -> None:
    """Then other clients are sending, and waiting for them would prolong the rounds."""
    rounds.learn_to_wait()
    rounds.come(4)
    assert not rounds.come()
    rounds.ports.advance(0.3)
    assert not rounds.come()
    rounds.ports.advance(0.3)
    assert rounds.come()
    assert rounds.sizes[-1] == 3


def test_round_after_a_pause_begins_immediately(rounds: Rounds) -> None:
    rounds.learn_to_wait()
    rounds.come(4)
    rounds.ports.advance(1.0)
    assert rounds.come()


def test_each_fruitless_wait_makes_more_rounds_begin_immediately(rounds: Rounds) -> None:
    rounds.learn_to_wait()
    at_once: list[int] = []
    for _ in range(12):
        rounds.come(4)
        count = 0
        while rounds.come():
            count += 1
            rounds.come(4)
        at_once.append(count)
        rounds.ports.advance(1.0)
    assert at_once[1:] == sorted(at_once[1:])
    assert at_once[-2:] == [255, 255]


def test_successful_waits_make_later_rounds_wait_again(rounds: Rounds) -> None:
    rounds.learn_to_wait()
    rounds.come(4)
    rounds.come()
    rounds.ports.advance(1.0)  # Fruitless.
    rounds.learn_to_wait()
    for _ in range(20):
        assert not rounds.come(3)
        assert rounds.come()
        assert rounds.sizes[-1] == 4
