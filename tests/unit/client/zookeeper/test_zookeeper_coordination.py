"""Groups that ZooKeeper coordinates: znodes, shares, listener calls, and faults of ZooKeeper."""

from __future__ import annotations

import json

import pytest

from plog.client.errors import (
    CommitFailed,
    ConfigError,
    ConnectionFailed,
    IllegalState,
    MaxPollIntervalExceeded,
)
from plog.client.group.member import GroupMember
from plog.client.group.member_state import MemberState
from plog.client.values import OffsetAndMetadata
from plog.errors import PlogError
from plog.types import TopicPartition
from plog.zookeeper.operations import Delete
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.client.deferred_zookeeper import DeferredZooKeeper
from tests.helpers.group.zookeeper_world import (
    MakeWorld,
    calls,
    numbers,
    pair,
)

T0 = TopicPartition("t", 0)


# -- shares ----------------------------------------------------------------------------------------


def test_single_member_has_all_partitions_and_the_znodes_of_kafka(
    make_zookeeper_world: MakeWorld,
) -> None:
    world = make_zookeeper_world()
    world.create("t", 2)
    a = world.member("a", "t")
    world.run_until_calm(t=2)
    assert a.listener.calls == [("assigned", ("t-0", "t-1"))]
    [consumer_id] = world.zookeeper.names("/consumers/g/ids")
    assert consumer_id.startswith("g_")
    path = f"/consumers/g/ids/{consumer_id}"
    data = world.zookeeper.data(path) or b""
    timestamp = json.loads(data)["timestamp"]
    assert data.decode() == (
        f'{{"version":1,"subscription":{{"t":1}},"pattern":"static","timestamp":"{timestamp}"}}'
    )
    assert world.owners("t") == {0: f"{consumer_id}-0", 1: f"{consumer_id}-0"}
    stats = [world.zookeeper.stat(each) for each in (path, "/consumers/g/owners/t/0")]
    assert [stat.ephemeral_owner for stat in stats if stat] == [a.client.session_id] * 2
    world.advance(1_000)
    offset = world.zookeeper.stat("/consumers/g/offsets/t/0")
    assert offset is not None
    assert offset.ephemeral_owner == 0
    assert world.offset(T0) == world.committed[T0] > 0


def test_member_revokes_all_partitions_when_its_share_changes(
    make_zookeeper_world: MakeWorld,
) -> None:
    world = make_zookeeper_world()
    world.create("t", 4)
    a = world.member("a", "t")
    world.run_until_calm(t=4)
    b = world.member("b", "t")
    world.run_until_calm(t=4)
    assert sorted([numbers(a), numbers(b)]) == [[0, 1], [2, 3]]
    assert a.listener.calls[1] == ("revoked", ("t-0", "t-1", "t-2", "t-3"))
    assert calls(a) == ["assigned", "revoked", "assigned"]
    assert calls(b) == ["assigned"]


def test_member_whose_share_does_not_change_keeps_its_partitions(
    make_zookeeper_world: MakeWorld,
) -> None:
    world = make_zookeeper_world()
    world.create("t", 2)
    world.create("u", 2)
    a = world.member("a", "t")
    world.run_until_calm(t=2)
    world.member("b", "u")
    world.run_until_calm(t=2, u=2)
    world.advance(5_000)
    assert calls(a) == ["assigned"]


def test_added_partitions_are_assigned(make_zookeeper_world: MakeWorld) -> None:
    world, a, b = pair(make_zookeeper_world, 2)
    world.write_topic("t", 6)
    world.run_until_calm(t=6)
    assert sorted(numbers(a) + numbers(b)) == [0, 1, 2, 3, 4, 5]


def test_topic_that_is_created_later_is_assigned(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world(auto_create_topics_enable=False)
    a = world.member("a", "late")
    world.advance(2_000)
    assert a.member.state is MemberState.STABLE
    assert a.owned == frozenset()
    world.create("late", 2)
    world.run_until_calm(late=2)


def test_pattern_follows_new_topics(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world()
    world.create("click-a", 2)
    world.create("other", 1)
    a = world.member("a", metadata_max_age_ms=5_000)
    a.start(pattern="click-.*")
    world.run_until_calm(**{"click-a": 2})
    world.create("click-b", 1)
    world.run_until_calm(**{"click-a": 2, "click-b": 1})
    registration = json.loads(world.zookeeper.data(f"/consumers/g/ids/{a.consumer_id}") or b"{}")
    assert registration["subscription"] == {"click-a": 1, "click-b": 1}


def test_other_topics_after_another_subscription(make_zookeeper_world: MakeWorld) -> None:
    world, a, b = pair(make_zookeeper_world)
    world.create("u", 2)
    a.member.subscribe(["u"], None, a.listener)
    world.run_until_calm(t=4, u=2)
    assert numbers(b) == [0, 1, 2, 3]
    assert {one.topic for one in a.owned} == {"u"}


# -- leaving and failures --------------------------------------------------------------------------


def test_close_leaves_the_group_immediately(make_zookeeper_world: MakeWorld) -> None:
    world, a, b = pair(make_zookeeper_world)
    before_s = world.sim.now_s()
    b.close()
    assert world.zookeeper.names("/consumers/g/ids") == [a.consumer_id]
    world.run_until_calm(t=4)
    assert numbers(a) == [0, 1, 2, 3]
    assert world.sim.now_s() - before_s < 2
    assert calls(b)[-1] == "revoked"


def test_unsubscribed_member_leaves_and_may_return(make_zookeeper_world: MakeWorld) -> None:
    world, a, b = pair(make_zookeeper_world)
    world.sim.run(b.member.leave("unsubscribed"))
    assert world.zookeeper.names("/consumers/g/ids") == [a.consumer_id]
    world.sim.run_until(lambda: numbers(a) == [0, 1, 2, 3])
    b.member.subscribe(["t"], None, b.listener)
    world.run_until_calm(t=4)
    assert len(numbers(b)) == 2


def test_member_that_leaves_while_zookeeper_is_away_is_removed_later(
    make_zookeeper_world: MakeWorld,
) -> None:
    world, a, b = pair(make_zookeeper_world)
    world.zookeeper.lose_quorum()
    before_s = world.sim.now_s()
    world.sim.run(b.member.leave("unsubscribed"))
    assert world.sim.now_s() - before_s < 6, "it waited for ZooKeeper"
    assert b.owned == frozenset()
    world.advance(30_000)
    world.zookeeper.restore_quorum()
    world.sim.run_until(lambda: world.zookeeper.names("/consumers/g/ids") == [a.consumer_id])
    world.sim.run_until(lambda: numbers(a) == [0, 1, 2, 3])
    # Its session has survived.
    assert b.has_session


def test_member_that_returns_first_completes_its_leave(make_zookeeper_world: MakeWorld) -> None:
    world, _, b = pair(make_zookeeper_world)
    world.zookeeper.lose_quorum()
    world.sim.run(b.member.leave("unsubscribed"))
    b.listener.calls.clear()
    b.member.subscribe(["t"], None, b.listener)
    world.advance(1_000)
    losses = 3

    def lose(client: MockZooKeeperClient, request: Request) -> Fault:
        nonlocal losses
        if losses and any(one == Delete(path=path) for one in request.operations):
            losses -= 1
            return Fault.LOSE_BEFORE
        return Fault.NONE

    path = f"/consumers/g/ids/{b.consumer_id}"
    world.zookeeper.on_request = lose
    world.zookeeper.restore_quorum()
    world.run_until_calm(t=4)
    world.advance(5_000)
    world.run_until_calm(t=4)
    assert calls(b) == ["assigned"]


def test_dead_member_is_removed_after_its_session_timeout(make_zookeeper_world: MakeWorld) -> None:
    world, a, b = pair(make_zookeeper_world)
    before_s = world.sim.now_s()
    b.die()
    world.run_until_calm(t=4)
    assert numbers(a) == [0, 1, 2, 3]
    assert 3 < world.sim.now_s() - before_s < 10


def test_member_loses_its_partitions_with_its_session(make_zookeeper_world: MakeWorld) -> None:
    world, a, b = pair(make_zookeeper_world)
    world.zookeeper.expire(b.client.session_id)
    world.run_until_calm(t=4)
    assert "lost" in calls(b)
    assert calls(b)[-1] == "assigned"
    assert {a.consumer_id, b.consumer_id} == set(world.zookeeper.names("/consumers/g/ids"))


def test_isolated_member_keeps_reading_but_cannot_commit_for_the_next_owner(
    make_zookeeper_world: MakeWorld,
) -> None:
    world, a, b = pair(make_zookeeper_world)
    its = sorted(b.owned)
    b.client.cut()
    b.stop_polling()
    world.sim.run_until(lambda: numbers(a) == [0, 1, 2, 3])
    assert sorted(b.owned) == its
    world.advance(5_000)
    committed = {one: world.offset(one) for one in its}
    assert all((offset or 0) > 0 for offset in committed.values())
    outcomes: list[Exception] = []

    async def commit() -> None:
        try:
            await b.member.commit({one: OffsetAndMetadata(0) for one in its}, timeout_s=60)
        except PlogError as error:
            outcomes.append(error)

    world.sim.spawn(commit(), "a late commit")
    assert outcomes == [], "it waits for ZooKeeper"
    b.client.restore()
    b.resume()
    world.run_until_calm(t=4)
    [outcome] = outcomes
    assert isinstance(outcome, CommitFailed)
    assert "lost" in calls(b)
    assert all((world.offset(one) or 0) >= (committed[one] or 0) for one in its)


def test_commit_with_an_expired_session_fails(make_zookeeper_world: MakeWorld) -> None:
    world, _, b = pair(make_zookeeper_world)
    [one, *_] = sorted(b.owned)
    b.stop_polling()
    world.advance(500)
    before = world.offset(one)
    world.zookeeper.expire(b.client.session_id)
    with pytest.raises(CommitFailed, match="group g"):
        world.sim.run(b.member.commit({one: OffsetAndMetadata(0)}))
    assert (world.offset(one) or 0) >= (before or 0)


def test_group_keeps_reading_while_zookeeper_is_away(make_zookeeper_world: MakeWorld) -> None:
    world, a, b = pair(make_zookeeper_world)
    before = dict(a.positions.offsets)
    world.zookeeper.lose_quorum()
    world.advance(30_000)
    assert a.owned == before.keys()
    world.zookeeper.restore_quorum()
    world.run_until_calm(t=4)
    world.advance(2_000)
    # No session has expired, so no partition has moved.
    assert calls(a).count("lost") == calls(b).count("lost") == 0
    assert calls(a)[-1] == calls(b)[-1] == "assigned"
    assert all((world.offset(one) or 0) > (before[one] or 0) for one in before)


def test_change_during_a_lost_connection_is_noticed(make_zookeeper_world: MakeWorld) -> None:
    world, a, _ = pair(make_zookeeper_world, 2)
    a.client.lose_connection()
    world.write_topic("t", 4)
    world.run_until_calm(t=4)


def test_member_that_does_not_poll_leaves_and_raises(make_zookeeper_world: MakeWorld) -> None:
    world, a, b = pair(make_zookeeper_world)
    b.stop_polling()
    world.advance(25_000)
    assert len(numbers(a)) == 2
    world.sim.run_until(lambda: numbers(a) == [0, 1, 2, 3])
    with pytest.raises(CommitFailed, match=r"max\.poll\.records"):
        world.sim.run(b.member.commit({T0: OffsetAndMetadata(1)}))
    b.resume()
    world.run_until_calm(t=4)
    [error] = b.errors
    assert isinstance(error, MaxPollIntervalExceeded)
    assert "lost" in calls(b)


# -- damage and errors -----------------------------------------------------------------------------


def test_unreachable_zookeeper_is_an_error_until_it_answers(
    make_zookeeper_world: MakeWorld,
) -> None:
    world = make_zookeeper_world()
    world.create("t", 2)
    world.zookeeper.lose_quorum()
    a = world.member("a", "t", zookeeper_connection_timeout_ms=2_000)
    world.advance(5_000)
    assert len(a.errors) == 2
    assert isinstance(a.errors[0], ConnectionFailed)
    assert str(a.errors[0]) == (
        "cannot connect to ZooKeeper at mock:2181: no response; start ZooKeeper, or correct"
        " zookeeper.connect"
    )
    world.zookeeper.restore_quorum()
    world.run_until_calm(t=2)


def test_transactions_are_refused(make_zookeeper_world: MakeWorld) -> None:
    _, a, _ = pair(make_zookeeper_world)
    with pytest.raises(IllegalState, match="cannot send offsets to a transaction: coordination"):
        _ = a.member.metadata


def test_own_assignors_are_refused(make_zookeeper_world: MakeWorld) -> None:
    world, a, _ = pair(make_zookeeper_world)
    with pytest.raises(ConfigError, match="assignors: not supported"):
        GroupMember(
            a.cluster,
            world.sim,
            a.settings,
            a.positions,
            assignors=["range"],
            zookeeper=DeferredZooKeeper(world.zookeeper),
            call_user=a._call_user,
        )
