"""Commits against a complete broker, and with errors that plog brokers never return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from plog.client.errors import CommitFailed
from plog.client.group.member_state import MemberState
from plog.client.values import OffsetAndMetadata
from plog.errors import (
    GroupAuthorizationFailed,
    KafkaError,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    TopicAuthorizationFailed,
)
from plog.types import TopicPartition
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.helpers.group.group_world import Member, World, outsider

MakeWorld = Callable[..., World]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def at(offset: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {T0: OffsetAndMetadata(offset)}


def commits(world: World) -> list[int]:
    """Return the offsets of t-0 that were sent for commit, in order."""
    return [
        partition.committed_offset
        for request in world.sim.requests
        if isinstance(request, OffsetCommitRequest)
        for topic in request.topics
        for partition in topic.partitions
        if (topic.name, partition.partition_index) == T0
    ]


def committed(world: World, member: Member) -> int | None:
    [offset] = world.sim.run(member.member.committed([T0])).values()
    return None if offset is None else offset.offset


def test_commit_stores_metadata_and_leader_epoch(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world)
    world.sim.run(member.member.commit({T0: OffsetAndMetadata(5, "half a page", 0)}))
    assert world.sim.run(member.member.committed([T0, T1])) == {
        T0: OffsetAndMetadata(5, "half a page", 0),
        T1: None,
    }


def test_empty_commit_and_fetch_need_no_broker(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world)
    world.sim.refuses = True
    world.sim.run(member.member.commit({}))
    assert world.sim.run(member.member.committed([])) == {}


def test_commit_is_retried_until_it_succeeds(make_world: MakeWorld) -> None:
    world = make_world(seed=2)
    member = outsider(world)
    faults = ["lose", "drop", "lose"]
    world.sim.on_request = lambda request: (
        faults.pop() if faults and isinstance(request, OffsetCommitRequest) else None
    )
    world.sim.run(member.member.commit(at(5)))
    assert commits(world) == [5, 5, 5, 5]


def test_commit_times_out(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world, default_api_timeout_ms=5_000, request_timeout_ms=1_000)
    world.sim.run(member.member.commit(at(1)))
    world.sim.refuses = True
    world.sim.drop_all()
    before_s = world.sim.now_s()
    with pytest.raises(KafkaError) as caught:
        world.sim.run(member.member.commit(at(2)))
    assert caught.value.retriable
    assert world.sim.now_s() - before_s < 20


def test_permanent_error_of_a_commit_is_raised_immediately(make_world: MakeWorld) -> None:
    world = make_world(offset_metadata_max_bytes=3)
    member = outsider(world)
    with pytest.raises(OffsetMetadataTooLarge, match="t-0"):
        world.sim.run(member.member.commit({T0: OffsetAndMetadata(1, "long")}))
    assert len(commits(world)) == 1


def test_asynchronous_commits_are_sent_and_completed_in_order(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world)
    answered: list[tuple[int, Exception | None]] = []

    def note(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        answered.append((offsets[T0].offset, error))

    for offset in range(5):
        member.member.commit_async(at(offset), note)
    world.sim.run(member.member.commit(at(9)))
    assert commits(world) == [0, 1, 2, 3, 4, 9]
    assert answered == [(offset, None) for offset in range(5)]


def test_asynchronous_commit_is_not_retried(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world)
    world.sim.run(member.member.commit(at(1)))
    world.sim.on_request = lambda request: (
        "lose" if isinstance(request, OffsetCommitRequest) else None
    )
    answered: list[Exception | None] = []
    member.member.commit_async(at(2), lambda _, error: answered.append(error))
    world.advance(60_000)
    assert commits(world) == [1, 2]
    [error] = answered
    assert isinstance(error, KafkaError)
    assert error.retriable


def test_failing_callback_does_not_stop_others(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world)
    answered: list[int] = []

    def fail(*_: object) -> None:
        raise ValueError("no")

    member.member.commit_async(at(1), fail)
    member.member.commit_async(at(2), lambda *_: answered.append(2))
    world.advance(1_000)
    assert answered == [2]
    [text] = world.errors.texts
    assert "callback" in text


def test_commit_without_generation_is_refused_when_group_has_members(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world)
    world.member("a", "t")
    world.run_until_calm(t=2)
    with pytest.raises(CommitFailed, match="has members"):
        world.sim.run(member.member.commit(at(1)))


def test_replaced_member_cannot_commit(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 1)
    a = world.member("a", "t")
    world.run_until_calm(t=1)
    a.stop_polling()
    a.broker_coordination.stop()
    world.advance(15_000)
    b = world.member("b", "t")
    world.sim.run_until(lambda: bool(b.owned))
    world.advance(5_000)
    b.stop_polling()
    before = committed(world, b)
    with pytest.raises(CommitFailed, match="has rebalanced without"):
        world.sim.run(a.member.commit(at(0)))
    assert committed(world, b) == before


def test_commit_during_a_rebalance_raises_rebalance_in_progress(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    world.create("t", 2)
    a = world.member("a", "t", partition_assignment_strategy="range")
    b = world.member("b", "t", partition_assignment_strategy="range")
    world.run_until_calm(t=2)
    b.stop_polling()
    world.member("c", "t", partition_assignment_strategy="range")
    world.sim.run_until(lambda: a.member.state.value == "preparing rebalance")
    with pytest.raises(RebalanceInProgress, match="poll"):
        world.sim.run(a.member.commit(at(1)))


def test_commit_is_not_sent_in_a_later_generation(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 1)
    a = world.member("a", "t")
    world.run_until_calm(t=1)
    a.stop_polling()
    world.advance(1_000)
    world.sim.on_request = lambda request: (
        "drop" if isinstance(request, OffsetCommitRequest) else None
    )
    failed: list[Exception | None] = []

    async def commit() -> None:
        try:
            await a.member.commit(at(0))
        except Exception as error:
            failed.append(error)

    world.sim.spawn(commit(), "commit")
    world.advance(500)
    a.member._membership.ask_to_rejoin("test")
    world.sim.run(a.until_active())
    world.sim.on_request = None
    world.advance(5_000)
    assert isinstance(failed[0], CommitFailed | RebalanceInProgress)


# -- automatic commits ----------------------------------------------------------------------------


def reader(world: World, **settings: Any) -> Member:
    """Return a member with automatic commits, whose position the test sets."""
    world.create("t", 1)
    a = world.member("a", enable_auto_commit=True, auto_commit_interval_ms=5_000, **settings)
    a.member.subscribe(["t"])
    a.member.polled()
    world.sim.run(a.until_active())
    return a


def test_automatic_commit_includes_only_records_before_the_last_poll(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    a = reader(world)
    a.positions.offsets[T0] = 10
    world.advance(5_001)
    assert commits(world) == [], "the application may still be processing these ten"
    a.member.polled()
    a.positions.offsets[T0] = 20
    world.advance(2_000)
    assert commits(world) == [10]
    world.advance(10_000)
    assert commits(world) == [10]


@pytest.mark.parametrize("waits", [True, False])
def test_automatic_commit_does_not_overwrite_a_manual_one(
    make_world: MakeWorld, waits: bool
) -> None:
    """The automatic commit of the last poll is older, but would be sent a moment later."""
    world = make_world()
    a = reader(world)
    a.positions.offsets[T0] = 10
    world.advance(5_000)
    a.member.polled()
    if waits:
        world.sim.run(a.member.commit(at(20)))
    else:
        a.member.commit_async(at(20))
    world.advance(4_000)
    assert commits(world) == [20]
    assert committed(world, a) == 20


def test_positions_are_committed_before_a_revocation(make_world: MakeWorld) -> None:
    world = make_world()
    a = reader(world, partition_assignment_strategy="range")
    a.positions.offsets[T0] = 7
    b = world.member("b", "t", partition_assignment_strategy="range")
    for _ in range(2):  # The first poll only starts the commit.
        world.sim.run_until(lambda: a.member.needs_attention)
        a.member.polled()
        world.sim.run(a.member.attend())
    assert a.owned == frozenset()
    assert committed(world, b) == 7


def test_positions_are_committed_on_close(make_world: MakeWorld) -> None:
    world = make_world()
    a = reader(world)
    a.positions.offsets[T0] = 7
    a.close()
    assert committed(world, world.member("b")) == 7


def test_failed_automatic_commit_is_retried(make_world: MakeWorld) -> None:
    world = make_world()
    a = reader(world)
    world.sim.on_request = lambda request: (
        "drop" if isinstance(request, OffsetCommitRequest) else None
    )
    a.positions.offsets[T0] = 3
    world.advance(5_000)
    a.member.polled()
    world.advance(2_000)
    world.sim.on_request = None
    a.member.polled()
    world.advance(2_000)
    assert committed(world, a) == 3


def test_automatic_commit_works_with_assigned_partitions(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world, enable_auto_commit=True, auto_commit_interval_ms=1_000)
    member.positions.assign([T0])
    member.positions.offsets[T0] = 4
    world.advance(1_000)
    member.member.polled()
    world.sim.run(member.member.attend())
    world.advance(1_000)
    assert committed(world, member) == 4


def test_unanswered_commits_do_not_block_leaving(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    world.create("t", 1)
    a = world.member("a")
    a.member.subscribe(["t"])
    a.member.polled()
    world.sim.run(a.until_active())
    world.sim.deaf = True
    a.member.commit_async(at(3))
    before_s = world.sim.now_s()
    world.sim.run(a.member.close(2))
    assert world.sim.now_s() - before_s < 10
    assert a.member.state is MemberState.UNJOINED


# -- errors that plog brokers never return --------------------------------------------------------


def commit_answer(code: int) -> OffsetCommitResponse:
    partitions = [OffsetCommitResponsePartition(partition_index=0, error_code=code)]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])


@pytest.mark.parametrize(
    ("code", "error"),
    [(29, TopicAuthorizationFailed), (30, GroupAuthorizationFailed)],
)
def test_authorization_errors_name_the_missing_permission(
    make_world: MakeWorld, code: int, error: type[KafkaError]
) -> None:
    world = make_world()
    member = outsider(world)
    member.answers(commit_answer(code))
    with pytest.raises(error, match=r"t|g"):
        world.sim.run(member.member.commit(at(1)))


def test_commit_is_retried_when_the_coordinator_moves_or_loads(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world)
    member.answers(*map(commit_answer, (14, 15, 16, 7, 3, 0)))
    world.sim.run(member.member.commit(at(1)))


def test_automatic_commits_do_not_accumulate_while_the_coordinator_is_away(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    world.create("t", 2)
    a = world.member("a", "t", enable_auto_commit=True, auto_commit_interval_ms=100)
    world.run_until_calm(t=2)
    world.sim.deaf = True
    world.advance(8_000)
    assert len(a.member._commits._waiting) + a.member._commits._in_flight <= 1
    world.sim.deaf = False
    world.sim.drop_all()
    world.run_until_calm(t=2)
    world.advance(5_000)
    assert commits(world)[-1] > 0
