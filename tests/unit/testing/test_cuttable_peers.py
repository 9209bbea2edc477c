"""Connections that a test cuts hold requests and responses back, in order."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import RequestTimedOut
from plog.wire.messages.api_versions import ApiVersionsRequest
from plogd.peers import PeerRequest, PeerUnavailable
from plogd.ports import Later
from plogd.testing.cuttable_peers import CuttablePeers
from tests.helpers.sim.sim_time import SimClock, SimTimers

REQUEST = ApiVersionsRequest()


class Peers:
    """Records requests; a test completes them."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, float, Later[Any]]] = []
        self.is_closed = False

    def ask(
        self, broker_id: int, request: PeerRequest, lane: str, *, timeout_ms: float = 30_000.0
    ) -> Later[Any]:
        """Record a request."""
        later: Later[Any] = Later()
        self.asked.append((broker_id, lane, timeout_ms, later))
        return later

    def close(self) -> None:
        """Record the call."""
        self.is_closed = True


class World:
    """The connections of a broker, and the outcomes of its requests."""

    def __init__(self, *cut_ids: int) -> None:
        self.timers = SimTimers(SimClock())
        self.peers = Peers()
        self.tested = CuttablePeers(self.peers, self.timers.clock, self.timers, cut_ids)
        self.outcomes: list[object] = []

    def ask(
        self, broker_id: int = 2, lane: str = "control", timeout_ms: float = 1000
    ) -> Later[Any]:
        """Ask, and record the outcome."""
        later = self.tested.ask(broker_id, REQUEST, lane, timeout_ms=timeout_ms)
        later.then(self.outcomes.append, self.outcomes.append)
        return later

    def advance(self, duration_ms: float) -> None:
        """Let time pass."""
        self.timers.advance(duration_ms)


@pytest.fixture
def world() -> World:
    """No connection is cut."""
    return World()


def test_requests_and_outcomes_pass(world: World) -> None:
    world.ask()
    world.ask(3)
    assert [asked[:3] for asked in world.peers.asked] == [
        (2, "control", 1000),
        (3, "control", 1000),
    ]
    world.peers.asked[0][3].succeed("response")
    world.peers.asked[1][3].fail(PeerUnavailable("refused"))
    assert world.outcomes[0] == "response"
    assert isinstance(world.outcomes[1], PeerUnavailable)


def test_request_is_held_back_while_the_connection_is_cut(world: World) -> None:
    world.tested.cut(2)
    world.ask(lane="first")
    world.ask(lane="second")
    world.ask(3)
    assert [asked[0] for asked in world.peers.asked] == [3]
    world.advance(400)
    world.tested.heal(2)
    assert [asked[:3] for asked in world.peers.asked[1:]] == [
        (2, "first", 600),
        (2, "second", 600),
    ]


def test_response_is_held_back_while_the_connection_is_cut(world: World) -> None:
    world.ask()
    world.tested.cut(2)
    world.peers.asked[0][3].succeed("response")
    assert world.outcomes == []
    world.tested.heal(2)
    assert world.outcomes == ["response"]


def test_request_times_out_while_it_is_held_back(world: World) -> None:
    world.tested.cut(2)
    world.ask()
    world.advance(1000)
    [error] = world.outcomes
    assert isinstance(error, RequestTimedOut)
    world.tested.heal(2)
    assert world.peers.asked == []


def test_request_times_out_while_its_response_is_held_back(world: World) -> None:
    world.ask()
    world.tested.cut(2)
    world.advance(300)
    world.peers.asked[0][3].succeed("response")
    world.advance(700)
    [error] = world.outcomes
    assert isinstance(error, RequestTimedOut)
    world.tested.heal(2)
    assert len(world.outcomes) == 1


def test_cancelled_request_is_not_sent(world: World) -> None:
    world.tested.cut(2)
    world.ask().cancel()
    world.tested.heal(2)
    assert world.peers.asked == []


def test_request_that_follows_a_response_does_not_overtake(world: World) -> None:
    world.tested.ask(2, REQUEST, "a").then(lambda _: world.ask(lane="last"), world.outcomes.append)
    world.tested.cut(2)
    world.peers.asked[0][3].succeed("response")
    world.ask(lane="held")
    world.tested.heal(2)
    assert [asked[1] for asked in world.peers.asked] == ["a", "held", "last"]


def test_connection_can_be_cut_from_the_start() -> None:
    world = World(2)
    world.ask()
    assert world.peers.asked == []
    world.tested.heal(2)
    assert len(world.peers.asked) == 1


def test_wait_for_requests_in_flight_ignores_later_and_held_ones(world: World) -> None:
    world.ask()
    world.ask(3)
    done: list[None] = []
    world.tested.in_flight().then(done.append, done.append)  # type: ignore[arg-type]
    world.ask()
    world.peers.asked[0][3].succeed("response")
    assert done == []
    world.tested.cut(3)
    assert done == [None]


def test_close_fails_what_is_held_back(world: World) -> None:
    world.ask()
    world.tested.cut(2)
    world.peers.asked[0][3].succeed("response")
    world.ask()
    world.tested.close()
    assert [type(error) for error in world.outcomes] == [PeerUnavailable] * 2
    assert len(world.peers.asked) == 1
    assert world.peers.is_closed
