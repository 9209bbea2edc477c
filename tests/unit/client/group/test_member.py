"""GroupMember against a complete broker: assignments, listener calls and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plog.client.errors import CommitFailed, ConnectionFailed, MaxPollIntervalExceeded
from plog.client.group.member_state import MemberState
from plog.client.values import OffsetAndMetadata
from plog.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    InvalidTopicException,
    KafkaError,
    RequestTimedOut,
)
from plog.types import TopicPartition
from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from plog.wire.messages.join_group import JoinGroupRequest
from plog.wire.messages.leave_group import LeaveGroupRequest
from plog.wire.messages.offset_commit import OffsetCommitRequest
from tests.helpers.group.group_world import Member, World

MakeWorld = Callable[..., World]


def numbers(member: Member) -> list[int]:
    return sorted(one.partition for one in member.owned)


def joins(world: World) -> int:
    return sum(isinstance(request, JoinGroupRequest) for request in world.sim.requests)


def test_single_member_has_all_partitions(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 3)
    a = world.member("a", "t")
    world.run_until_calm(t=3)
    assert a.listener.calls == [("assigned", ("t-0", "t-1", "t-2"))]
    assert a.member.subscription == {"t"}


def test_eager_member_revokes_all_partitions_for_a_second_member(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 4)
    a = world.member("a", "t", partition_assignment_strategy="range")
    world.run_until_calm(t=4)
    b = world.member("b", "t", partition_assignment_strategy="range")
    world.run_until_calm(t=4)
    assert sorted([numbers(a), numbers(b)]) == [[0, 1], [2, 3]]
    assert a.listener.calls[1] == ("revoked", ("t-0", "t-1", "t-2", "t-3"))
    assert a.listener.calls[2][0] == "assigned"
    assert len(b.listener.calls) == 1


def test_cooperative_member_revokes_only_moving_partitions(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 4)
    a = world.member("a", "t", partition_assignment_strategy="cooperative-sticky")
    world.run_until_calm(t=4)
    kept = dict(a.positions.offsets)
    b = world.member("b", "t", partition_assignment_strategy="cooperative-sticky")
    world.run_until_calm(t=4)
    assert (numbers(a), numbers(b)) == ([0, 1], [2, 3])
    assert ("revoked", ("t-2", "t-3")) in a.listener.calls
    assert not any(what == "revoked" and "t-0" in those for what, those in a.listener.calls)
    assert all((a.positions.offsets[one] or 0) >= (kept[one] or 0) for one in a.owned)
    assert b.listener.calls[-1] == ("assigned", ("t-2", "t-3"))


def test_close_leaves_the_group_immediately(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    a, b = world.member("a", "t"), world.member("b", "t")
    world.run_until_calm(t=2)
    before_s = world.sim.now_s()
    b.close()
    world.run_until_calm(t=2)
    assert numbers(a) == [0, 1]
    assert world.sim.now_s() - before_s < 5
    assert b.listener.calls[-1][0] == "revoked"
    assert b.owned == frozenset()


def test_dead_member_is_removed_after_its_session_timeout(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    a, b = world.member("a", "t"), world.member("b", "t")
    world.run_until_calm(t=2)
    before_s = world.sim.now_s()
    b.die()
    world.run_until_calm(t=2)
    assert numbers(a) == [0, 1]
    assert 8 < world.sim.now_s() - before_s < 15


def test_member_that_does_not_poll_leaves_and_raises(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    a, b = world.member("a", "t"), world.member("b", "t")
    world.run_until_calm(t=2)
    b.stop_polling()
    world.advance(25_000)
    assert numbers(a) != [0, 1], "its heartbeats continued"
    world.sim.run_until(lambda: numbers(a) == [0, 1])
    with pytest.raises(CommitFailed, match=r"max\.poll\.records"):
        world.sim.run(b.member.commit({TopicPartition("t", 0): OffsetAndMetadata(1)}))
    b.resume()
    world.run_until_calm(t=2)
    [error] = b.errors
    assert isinstance(error, MaxPollIntervalExceeded)
    assert "max.poll.interval.ms=30000" in str(error)
    assert "lost" in [what for what, _ in b.listener.calls]


def test_waiting_poll_counts_as_polling(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t")
    a = world.member("a", "t")
    world.run_until_calm(t=1)
    a.stop_polling()
    world.advance(1_000)
    a.member.polled(waits=True)
    world.advance(120_000)
    assert a.member.state is MemberState.STABLE


def test_subscription_may_change(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    world.create("u", 2)
    a, b = world.member("a", "t"), world.member("b", "t")
    world.run_until_calm(t=2)
    b.member.subscribe(["u"], listener=b.listener)
    world.run_until_calm(t=2, u=2)
    assert {one.topic for one in a.owned} == {"t"}
    assert {one.topic for one in b.owned} == {"u"}


def test_pattern_matches_new_topics(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("log-a", 1)
    world.create("other", 1)
    a = world.member("a", metadata_max_age_ms=5_000).start(pattern="log-.*")
    world.sim.run_until(lambda: world.is_calm({"log-a": 1}))
    world.create("log-b", 2)
    world.sim.run_until(lambda: world.is_calm({"log-a": 1, "log-b": 2}))
    assert a.member.subscription == {"log-a", "log-b"}


def test_topic_with_new_partitions_is_reassigned(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 1)
    world.member("a", "t", metadata_max_age_ms=5_000)
    world.member("b", "t", metadata_max_age_ms=5_000)
    world.run_until_calm(t=1)
    grown = CreatePartitionsTopic(name="t", count=5, assignments=None)
    request = CreatePartitionsRequest(topics=[grown], timeout_ms=1000)
    assert world.sim.broker.ask(request, 3).results[0].error_code == 0
    world.run_until_calm(t=5)


def test_missing_topic_is_assigned_once_it_exists(make_world: MakeWorld) -> None:
    world = make_world()
    a = world.member("a", "t", metadata_max_age_ms=5_000)
    world.run_until_calm()
    assert a.owned == frozenset()
    world.create("t", 2)
    world.run_until_calm(t=2)


def test_invalid_topic_name_is_refused(make_world: MakeWorld) -> None:
    world = make_world()
    a = world.member("a")
    a.member.subscribe(["no/name"])
    with pytest.raises(InvalidTopicException, match="no/name"):
        world.sim.run(a.until_active())


def test_unsubscribed_member_may_subscribe_again(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    a, b = world.member("a", "t"), world.member("b", "t")
    world.run_until_calm(t=2)
    world.sim.run(b.member.leave("the consumer unsubscribed from all topics"))
    assert b.owned == frozenset()
    assert not b.member.is_subscribed
    world.sim.run_until(lambda: numbers(a) == [0, 1])
    b.member.subscribe(["t"], listener=b.listener)
    world.run_until_calm(t=2)
    assert len(b.owned) == 1


def test_static_member_returns_without_a_rebalance(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    a = world.member("a", "t", group_instance_id="one")
    b = world.member("b", "t", group_instance_id="two")
    world.run_until_calm(t=2)
    had, generation = numbers(b), a.member.generation.generation_id
    b.close()
    assert not any(isinstance(x, LeaveGroupRequest) for x in world.sim.requests)
    b = world.member("b", "t", group_instance_id="two")
    world.run_until_calm(t=2)
    assert numbers(b) == had
    assert a.member.generation.generation_id == generation


def test_replaced_static_member_stays_fenced(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    a = world.member("a", "t", group_instance_id="one")
    world.run_until_calm(t=2)
    a.stop_polling()
    world.member("b", "t", group_instance_id="one")
    world.run_until_calm(t=2)
    world.advance(5_000)
    for _ in range(2):
        with pytest.raises(FencedInstanceId, match=r"group\.instance\.id=one"):
            world.sim.run(a.until_active())
    assert a.owned == frozenset()
    assert a.listener.calls[-1][0] == "lost"


def fails(world: World, member: Member, error: type[KafkaError]) -> str:
    member.member.subscribe(["t"])
    with pytest.raises(error) as caught:
        world.sim.run(member.until_active())
    return str(caught.value)


def test_missing_common_assignor_error_has_a_remedy(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t")
    world.member("a", "t", partition_assignment_strategy="range")
    world.run_until_calm(t=1)
    b = world.member("b", partition_assignment_strategy="roundrobin")
    text = fails(world, b, InconsistentGroupProtocol)
    assert "roundrobin" in text
    assert "partition.assignment.strategy" in text


def test_full_group_is_refused(make_world: MakeWorld) -> None:
    world = make_world(group_max_size=1)
    world.create("t")
    world.member("a", "t")
    world.run_until_calm(t=1)
    assert "group.max.size" in fails(world, world.member("b"), GroupMaxSizeReached)


def test_refused_session_timeout_is_named_in_the_error(make_world: MakeWorld) -> None:
    world = make_world()
    a = world.member("a", session_timeout_ms=5_000_000, heartbeat_interval_ms=1_000)
    assert "session.timeout.ms=5000000" in fails(world, a, InvalidSessionTimeout)


def test_group_survives_a_broker_restart(make_world: MakeWorld) -> None:
    world = make_world(seed=3)
    world.create("t", 4)
    a, b = world.member("a", "t"), world.member("b", "t")
    world.run_until_calm(t=4)
    world.sim.restart()
    world.advance(1_000)
    world.run_until_calm(t=4)
    assert [a.errors, b.errors] == [[], []]


def test_broken_connections_cause_no_rebalance(make_world: MakeWorld) -> None:
    world = make_world(seed=4)
    world.create("t", 4)
    a, b = world.member("a", "t"), world.member("b", "t")
    world.run_until_calm(t=4)
    generation = a.member.generation.generation_id
    for _ in range(5):
        world.sim.drop_all()
        world.advance(3_000)
    world.run_until_calm(t=4)
    assert a.member.generation.generation_id == generation
    assert [a.errors, b.errors] == [[], []]


def test_join_is_retried_after_a_lost_response(make_world: MakeWorld) -> None:
    world = make_world(seed=5)
    world.create("t", 2)
    faults = ["lose", "drop", "lose"]
    world.sim.on_request = lambda request: (
        faults.pop() if faults and isinstance(request, JoinGroupRequest) else None
    )
    a = world.member("a", "t")
    world.run_until_calm(t=2)
    assert a.errors == []


def test_listener_exception_is_raised_by_the_poll(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    world.create("t", 2)
    a = world.member("a")

    def fails(_: object) -> None:
        raise ValueError("no room")

    a.listener.on_partitions_assigned = fails  # type: ignore[method-assign,assignment]
    a.member.subscribe(["t"], listener=a.listener)
    with pytest.raises(ValueError, match="no room"):
        world.sim.run(a.until_active())
    assert numbers(a) == [0, 1]
    assert a.is_active


def test_generation_takes_one_join_per_member(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    world.member("a", "t")
    world.run_until_calm(t=2)
    world.advance(60_000)
    assert joins(world) == 2, "one without a member id, and one with it"


def test_member_that_leaves_during_a_rebalance_does_not_block_it(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    a = world.member("a", "t", partition_assignment_strategy="range")
    b = world.member("b", "t", partition_assignment_strategy="range")
    world.run_until_calm(t=2)
    b.stop_polling()
    c = world.member("c", "t", partition_assignment_strategy="range")
    world.sim.run_until(lambda: bool(c.member.generation.member_id))
    world.advance(500)
    assert c.member.state is MemberState.PREPARING_REBALANCE
    before_s = world.sim.now_s()
    c.close()
    assert world.sim.now_s() - before_s < 1
    b.resume()
    world.run_until_calm(t=2)
    assert a.errors == b.errors == []


@pytest.mark.parametrize(("patience_s", "poll_s"), [(None, 30.0), (2.0, 30.0), (None, 3.0)])
def test_commit_in_a_listener_has_its_own_timeout(
    make_world: MakeWorld, patience_s: float | None, poll_s: float
) -> None:
    """As in Kafka's consumer, it is default.api.timeout.ms or the timeout of the call.

    It never exceeds the time that the group waits for a poll: a removed member cannot commit.
    """
    world = make_world()
    world.create("t", 2)
    settings = {
        "partition_assignment_strategy": "range",
        "default_api_timeout_ms": 5_000,
        "max_poll_interval_ms": int(poll_s * 1000),
    }
    a = world.member("a", "t", **settings)
    world.run_until_calm(t=2)
    took_s: list[float] = []

    async def commits(*_: object) -> None:
        world.sim.on_request = lambda x: "drop" if isinstance(x, OffsetCommitRequest) else None
        began_s = world.sim.now_s()
        try:
            await a.member.commit({next(iter(a.owned)): OffsetAndMetadata(1)}, timeout_s=patience_s)
        finally:
            took_s.append(world.sim.now_s() - began_s)
            world.sim.on_request = None

    async def call(function: Any, *arguments: Any) -> Any:
        is_revoked = function == a.listener.on_partitions_revoked
        return await commits() if is_revoked else function(*arguments)

    a.member._listening._call_user = call
    world.member("b", "t", **settings)
    world.run_until_calm(t=2)
    [error] = a.errors
    assert isinstance(error, ConnectionFailed | RequestTimedOut | CommitFailed)
    assert "on_partitions_revoked" in str(error.__notes__)
    limit_s = patience_s or min(5.0, poll_s)
    assert limit_s / 2 <= took_s[0] <= limit_s + 0.001


def test_poll_cancelled_in_a_listener_is_completed_by_the_next(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    world.create("t", 1)
    a = world.member("a")
    waits = True

    async def assigned(function: Any, *arguments: Any) -> Any:
        if waits:
            await world.sim.sleep(1_000)
        return function(*arguments)

    a.member._call_user = assigned
    a.member.subscribe(["t"], listener=a.listener)
    poll = world.sim.spawn(a.until_active(), "a poll")
    world.advance(5_000)
    poll.cancel()
    world.advance(1_000)
    assert a.listener.calls == []
    waits = False
    world.sim.run(a.until_active())
    assert a.listener.calls == [("assigned", ("t-0",))]


def test_partitions_that_a_hung_static_member_had_to_revoke_get_an_owner(
    make_world: MakeWorld,
) -> None:
    """The member returns to the same generation without a rebalance and owns no partitions."""
    world = make_world()
    world.create("t", 4)
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    a = world.member("a", "t", group_instance_id="one", **settings)
    world.run_until_calm(t=4)
    world.member("b", "t", **settings)
    world.sim.run_until(lambda: a.member.state is MemberState.PREPARING_REBALANCE)
    a.stop_polling()
    world.advance(35_000)
    a.resume()
    world.run_until_calm(t=4)
    assert "lost" in [what for what, _ in a.listener.calls]


def test_metadata_names_the_generation_of_the_read_records(make_world: MakeWorld) -> None:
    """A transaction must not overwrite the offsets of the partitions' next owner (KIP-447)."""
    world = make_world()
    world.create("t", 2)
    a = world.member("a", "t")
    assert a.member.metadata.generation_id == -1
    world.run_until_calm(t=2)
    first = a.member.metadata
    generation = a.member.generation
    assert first == (
        a.member.group_id,
        generation.generation_id,
        generation.member_id,
        generation.group_instance_id,
    )
    world.member("b", "t")
    world.run_until_calm(t=2)
    assert a.member.metadata.generation_id > first.generation_id
    last = a.member.metadata
    world.sim.run(a.member.leave("a test"))
    assert not a.member.generation.is_member
    assert a.member.metadata == last
