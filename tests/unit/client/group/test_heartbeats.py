"""Heartbeats: when they are sent, and the effect of their responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plog.client.group.member_state import MemberState
from plog.errors import ErrorCode, GroupAuthorizationFailed
from plog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.helpers.group.group_world import Member, World

MakeWorld = Callable[..., World]


def beats(world: World) -> int:
    return sum(isinstance(request, HeartbeatRequest) for request in world.sim.requests)


def joined(world: World, **settings: Any) -> Member:
    """Return the only member of its group, whose application has stopped polling."""
    world.create("t")
    a = world.member("a", "t", **settings)
    world.run_until_calm(t=1)
    a.stop_polling()
    world.advance(500)
    return a


def answers(member: Member, code: int) -> None:
    """Make the coordinator respond to the next heartbeat with `code`."""
    link: Any = member.broker_coordination.link
    ask = link.ask

    async def answer(request: Any, response: Any, **options: Any) -> Any:
        if isinstance(request, HeartbeatRequest):
            link.ask = ask
            return HeartbeatResponse(error_code=code)
        return await ask(request, response, **options)

    link.ask = answer


def test_heartbeats_keep_their_interval_without_polls(make_world: MakeWorld) -> None:
    world = make_world()
    joined(world)
    before = beats(world)
    world.advance(10_000)
    assert beats(world) - before in (9, 10)


def test_heartbeats_stop_when_the_application_hangs_and_resume_with_a_poll(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    a = joined(world, max_poll_interval_ms=15_000)
    world.advance(16_000)
    before = beats(world)
    world.advance(10_000)
    assert beats(world) == before
    a.resume()
    world.run_until_calm(t=1)
    world.advance(3_000)
    assert beats(world) > before


def test_broken_connection_keeps_the_session(make_world: MakeWorld) -> None:
    world = make_world(seed=1)
    a = joined(world, max_poll_interval_ms=600_000)
    for _ in range(20):
        world.sim.drop_all()
        world.advance(2_000)
    assert a.member.state is MemberState.STABLE
    assert not a.member.needs_attention


@pytest.mark.parametrize(
    ("code", "keeps_member_id"),
    [(ErrorCode.ILLEGAL_GENERATION, True), (ErrorCode.UNKNOWN_MEMBER_ID, False)],
)
def test_removed_member_rejoins(make_world: MakeWorld, code: int, keeps_member_id: bool) -> None:
    world = make_world()
    a = joined(world)
    before = a.member.generation
    answers(a, code)
    world.advance(2_000)
    assert a.member.state is MemberState.UNJOINED
    assert (a.member.generation.member_id == before.member_id) is keeps_member_id
    a.resume()
    world.sim.run_until(lambda: a.is_active)
    assert [what for what, _ in a.listener.calls[-2:]] == ["lost", "assigned"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_moving_or_loading_coordinator_causes_no_rejoin(make_world: MakeWorld, code: int) -> None:
    world = make_world()
    a = joined(world)
    answers(a, code)
    world.advance(5_000)
    assert a.is_active
    last_s = a.member.metrics()["last-heartbeat-seconds-ago"]
    assert 0 <= last_s < 2


def test_authorization_error_is_raised_by_the_next_poll(make_world: MakeWorld) -> None:
    world = make_world()
    a = joined(world)
    answers(a, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    world.advance(1_500)
    with pytest.raises(GroupAuthorizationFailed):
        world.sim.run(a.member.attend())
