"""Committed offsets are fetched, despite errors that plog brokers never return."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plog.client.values import OffsetAndMetadata
from plog.errors import (
    GroupAuthorizationFailed,
    KafkaError,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from plog.types import TopicPartition
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.helpers.group.group_world import World, outsider

MakeWorld = Callable[..., World]
T0 = TopicPartition("t", 0)


def answer(code: int, group_code: int = 0) -> OffsetFetchResponse:
    partitions = [
        OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=4, metadata="", error_code=code
        )
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=partitions)]
    group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=group_code)
    return OffsetFetchResponse(groups=[group])


@pytest.mark.parametrize(
    ("scripted", "error"),
    [
        (answer(29), TopicAuthorizationFailed),
        (answer(0, 30), GroupAuthorizationFailed),
        (answer(3), UnknownTopicOrPartition),
    ],
)
def test_permanent_error_is_raised_immediately(
    make_world: MakeWorld, scripted: OffsetFetchResponse, error: type[KafkaError]
) -> None:
    world = make_world()
    member = outsider(world)
    member.answers(scripted)
    with pytest.raises(error, match="group g"):
        world.sim.run(member.member.committed([T0]))


def test_fetch_is_retried_when_the_coordinator_moves_or_loads(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world)
    member.answers(*(answer(0, code) for code in (14, 15, 16, 0)))
    assert world.sim.run(member.member.committed([T0])) == {T0: OffsetAndMetadata(4)}


def test_fetch_waits_for_pending_transactions(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world, isolation_level="read_committed")
    member.answers(answer(88), answer(88), answer(0))
    assert world.sim.run(member.member.committed([T0])) == {T0: OffsetAndMetadata(4)}
    member.answers(*[answer(88)] * 100)
    with pytest.raises((UnstableOffsetCommit, RequestTimedOut)):
        world.sim.run(member.member.committed([T0], timeout_s=2.0))


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_stable_offsets_are_required_at_any_isolation_level(
    make_world: MakeWorld, isolation_level: str
) -> None:
    world = make_world()
    member = outsider(world, isolation_level=isolation_level)
    world.sim.run(member.member.committed([T0]))
    [request] = [x for x in world.sim.requests if isinstance(x, OffsetFetchRequest)]
    assert request.require_stable
