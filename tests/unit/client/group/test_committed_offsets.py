"""How far a group has come, and what a coordinator may answer that this broker never does."""

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
from tests.helpers.group_world import World, outsider

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
def test_what_trying_again_does_not_cure_is_raised_at_once(
    make_world: MakeWorld, scripted: OffsetFetchResponse, error: type[KafkaError]
) -> None:
    world = make_world()
    member = outsider(world)
    member.answers(scripted)
    with pytest.raises(error, match="group g"):
        world.sim.run(member.member.committed([T0]))


def test_a_coordinator_that_moves_or_loads_is_asked_again(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world)
    member.answers(*(answer(0, code) for code in (14, 15, 16, 0)))
    assert world.sim.run(member.member.committed([T0])) == {T0: OffsetAndMetadata(4)}


def test_offsets_of_an_open_transaction_are_waited_for(make_world: MakeWorld) -> None:
    world = make_world()
    member = outsider(world, isolation_level="read_committed")
    member.answers(answer(88), answer(88), answer(0))
    assert world.sim.run(member.member.committed([T0])) == {T0: OffsetAndMetadata(4)}
    member.answers(*[answer(88)] * 100)
    with pytest.raises((UnstableOffsetCommit, RequestTimedOut)):
        world.sim.run(member.member.committed([T0], timeout_s=2.0))


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_only_stable_offsets_are_asked_for_whatever_is_read(
    make_world: MakeWorld, isolation_level: str
) -> None:
    world = make_world()
    member = outsider(world, isolation_level=isolation_level)
    world.sim.run(member.member.committed([T0]))
    [request] = [x for x in world.sim.requests if isinstance(x, OffsetFetchRequest)]
    assert request.require_stable
