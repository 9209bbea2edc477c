"""Offsets in ZooKeeper: transactions, order, and what is not written."""

from __future__ import annotations

import pytest

from plog.client.errors import CommitFailed, ConnectionFailed
from plog.client.values import OffsetAndMetadata
from plog.errors import KafkaError, RequestTimedOut
from plog.types import TopicPartition
from plog.zookeeper.operations import Check, Create, Delete, SetData
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.group.zookeeper_world import MakeWorld, ZooKeeperMember, ZooKeeperWorld

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def at(offset: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {T0: OffsetAndMetadata(offset)}


def outsider(make_zookeeper_world: MakeWorld) -> tuple[ZooKeeperWorld, ZooKeeperMember]:
    """Return a client with a group.id and no subscription."""
    world = make_zookeeper_world()
    world.create("t", 2)
    return world, world.member("simple")


def writes(world: ZooKeeperWorld, of: str = "/offsets/") -> list[Request]:
    """Return a list of the transactions from now on that write offsets."""
    requests: list[Request] = []

    def note(client: MockZooKeeperClient, request: Request) -> Fault:
        if any(of in one.path for one in request.operations):
            requests.append(request)
        return Fault.NONE

    world.zookeeper.on_request = note
    return requests


def test_committed_offset_is_read_back(make_zookeeper_world: MakeWorld) -> None:
    world, member = outsider(make_zookeeper_world)
    assert world.sim.run(member.member.committed([T0])) == {T0: None}
    world.sim.run(member.member.commit({T0: OffsetAndMetadata(5, leader_epoch=3)}))
    assert world.zookeeper.data("/consumers/g/offsets/t/0") == b"5"
    assert world.sim.run(member.member.committed([T0, T1])) == {T0: OffsetAndMetadata(5), T1: None}


def test_empty_commit_and_fetch_need_no_connection(make_zookeeper_world: MakeWorld) -> None:
    world, member = outsider(make_zookeeper_world)
    world.sim.run(member.member.commit({}))
    assert world.sim.run(member.member.committed([])) == {}
    assert member.connection.client is None


def test_offsets_of_a_kafka_consumer_are_continued(make_zookeeper_world: MakeWorld) -> None:
    world, member = outsider(make_zookeeper_world)
    for path in ("/consumers", "/consumers/g", "/consumers/g/offsets", "/consumers/g/offsets/t"):
        world.zookeeper.write(Create(path=path))
    world.zookeeper.write(Create(path="/consumers/g/offsets/t/0", data=b"7"))
    assert world.sim.run(member.member.committed([T0])) == at(7)
    world.sim.run(member.member.commit(at(8)))
    assert world.offset(T0) == 8


def test_metadata_of_an_offset_is_refused(make_zookeeper_world: MakeWorld) -> None:
    world, member = outsider(make_zookeeper_world)
    with pytest.raises(ValueError, match="cannot commit metadata for t-0: with coordination"):
        world.sim.run(member.member.commit({T0: OffsetAndMetadata(5, "page 3")}))


def test_unchanged_offsets_are_not_written(make_zookeeper_world: MakeWorld) -> None:
    world, member = outsider(make_zookeeper_world)
    world.sim.run(member.member.commit({T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6)}))
    requests = writes(world)
    world.sim.run(member.member.commit({T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(7)}))
    [request] = requests
    assert [one.path for one in request.operations] == ["/consumers/g/offsets/t/1"]


def test_many_offsets_are_written_in_small_transactions(make_zookeeper_world: MakeWorld) -> None:
    world, member = outsider(make_zookeeper_world)
    offsets = {TopicPartition("t", number): OffsetAndMetadata(number) for number in range(150)}
    world.sim.run(member.member.commit(offsets))
    requests = writes(world)
    world.sim.run(
        member.member.commit(
            {one: OffsetAndMetadata(each.offset + 1) for one, each in offsets.items()}
        )
    )
    assert [len(request.operations) for request in requests] == [64, 64, 22]
    assert world.sim.run(member.member.committed(list(offsets)))[
        TopicPartition("t", 149)
    ] == OffsetAndMetadata(150)


def test_asynchronous_commits_are_applied_in_order(make_zookeeper_world: MakeWorld) -> None:
    world, member = outsider(make_zookeeper_world)
    answered: list[tuple[int, Exception | None]] = []
    for offset in range(1, 6):
        # The first one must create the znodes, and the others must not overtake it.
        member.member.commit_async(
            at(offset), lambda offsets, error: answered.append((offsets[T0].offset, error))
        )
    world.sim.run(member.member.commit({}))
    assert world.offset(T0) == 5
    world.advance(1)
    assert answered == [(offset, None) for offset in range(1, 6)]


def test_slow_commit_is_not_overtaken(make_zookeeper_world: MakeWorld) -> None:
    world, member = outsider(make_zookeeper_world)
    world.sim.run(member.member.commit(at(1)))
    # The znode of the other topic and its parent must be created first.
    other = TopicPartition("other", 0)
    member.member.commit_async({T0: OffsetAndMetadata(2), other: OffsetAndMetadata(2)})
    member.member.commit_async(at(3))
    world.sim.run(member.member.commit({}))
    assert (world.offset(T0), world.offset(other)) == (3, 2)


@pytest.mark.parametrize("fault", [Fault.LOSE_BEFORE, Fault.LOSE_AFTER])
def test_commit_is_retried_after_a_lost_connection(
    make_zookeeper_world: MakeWorld, fault: Fault
) -> None:
    world, member = outsider(make_zookeeper_world)
    faults = [fault] * 3

    def lose(client: MockZooKeeperClient, request: Request) -> Fault:
        is_write = any("/offsets/t/0" in one.path for one in request.operations)
        return faults.pop() if faults and is_write else Fault.NONE

    world.zookeeper.on_request = lose
    world.sim.run(member.member.commit(at(5)))
    assert not faults
    assert world.offset(T0) == 5


def test_commit_and_fetch_time_out_without_zookeeper(make_zookeeper_world: MakeWorld) -> None:
    world, member = outsider(make_zookeeper_world)
    world.sim.run(member.member.commit(at(5)))
    member.client.cut()
    before_s = world.sim.now_s()
    # Nothing has reported the lost connection yet.
    with pytest.raises(RequestTimedOut, match="cannot commit offsets for group g: timed out"):
        world.sim.run(member.member.commit(at(6), timeout_s=1))
    with pytest.raises(RequestTimedOut, match="cannot fetch the committed offsets of group g"):
        world.sim.run(member.member.committed([T0], timeout_s=1))
    assert world.sim.now_s() - before_s < 3
    world.advance(20_000)
    with pytest.raises(ConnectionFailed, match=r"cannot connect to ZooKeeper .* \(tried for 1 s\)"):
        world.sim.run(member.member.commit(at(6), timeout_s=1))


def test_offsets_are_written_before_the_owners_are_released(
    make_zookeeper_world: MakeWorld,
) -> None:
    world = make_zookeeper_world()
    world.create("t", 4)
    a = world.member(
        "a",
        "t",
        enable_auto_commit=True,
        auto_commit_interval_ms=60_000,
        max_poll_interval_ms=60_000,
    )
    world.run_until_calm(t=4)
    world.advance(5_000)
    assert world.offset(T0) is None
    requests = writes(world, of="/consumers/g/o")
    world.member("b", "t", enable_auto_commit=True)
    world.run_until_calm(t=4)
    mine = [request for request in requests if request.operations[0].path.endswith(a.consumer_id)]
    kinds = [
        type(request.operations[1]) if "/owners/" in request.operations[1].path else "offsets"
        for request in mine
    ]
    assert kinds.index("offsets") < kinds.index(Delete) < kinds.index(Create)
    # Its registration is checked in the same transaction.
    assert all(isinstance(request.operations[0], Check) for request in mine)
    assert world.offset(T0) is not None


def test_automatic_commits_follow_their_interval(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world()
    world.create("t", 1)
    a = world.member("a", "t", enable_auto_commit=True, auto_commit_interval_ms=1_000)
    world.run_until_calm(t=1)
    requests = writes(world)
    world.advance(10_500)
    # The first one creates the znode.
    changes = [one for one in requests if isinstance(one.operations[-1], SetData)]
    assert 8 <= len(changes) <= 10
    assert world.offset(T0) is not None
    a.close()
    assert world.offset(T0) == a.positions.offsets.get(T0, world.offset(T0))


def test_close_commits_the_last_positions(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world()
    world.create("t", 1)
    a = world.member("a", "t", enable_auto_commit=True, auto_commit_interval_ms=60_000)
    world.run_until_calm(t=1)
    world.advance(5_000)
    position = a.positions.offsets[T0]
    assert world.offset(T0) is None
    a.close()
    assert world.offset(T0) == position


def test_commit_without_registration_fails(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world()
    world.create("t", 1)
    a = world.member("a", "t")
    world.run_until_calm(t=1)
    a.stop_polling()
    world.advance(500)
    before = world.offset(T0)
    # Without its watch: the member does not know it yet.
    a.client.hold()
    world.zookeeper.write(Delete(path=f"/consumers/g/ids/{a.consumer_id}"))
    with pytest.raises(CommitFailed, match="the registration of this consumer was removed"):
        world.sim.run(a.member.commit(at(99)))
    assert world.offset(T0) == before


def test_damaged_offset_can_be_overwritten(make_zookeeper_world: MakeWorld) -> None:
    world, member = outsider(make_zookeeper_world)
    world.sim.run(member.member.commit(at(5)))
    world.zookeeper.write(SetData(path="/consumers/g/offsets/t/0", data=b"-3"))
    with pytest.raises(KafkaError, match="write a number, or delete the znode"):
        world.sim.run(member.member.committed([T0]))
    world.sim.run(member.member.commit(at(6)))
    assert world.sim.run(member.member.committed([T0])) == at(6)


def test_deleted_offset_is_created_again(make_zookeeper_world: MakeWorld) -> None:
    world, member = outsider(make_zookeeper_world)
    world.sim.run(member.member.commit(at(5)))
    world.zookeeper.write(
        Delete(path="/consumers/g/offsets/t/0"), Delete(path="/consumers/g/offsets/t")
    )
    world.sim.run(member.member.commit(at(6)))
    assert world.offset(T0) == 6


def test_offset_of_another_consumer_is_overwritten_after_a_rebalance(
    make_zookeeper_world: MakeWorld,
) -> None:
    world = make_zookeeper_world()
    world.create("t", 2)
    a = world.member("a", "t")
    world.run_until_calm(t=2)
    a.stop_polling()
    world.advance(500)
    world.sim.run(a.member.commit(at(5)))
    world.zookeeper.write(SetData(path="/consumers/g/offsets/t/0", data=b"7"))
    world.write_topic("t", 3)
    world.sim.run_until(lambda: a.member.needs_attention)
    world.sim.run(a.until_active())
    assert len(a.owned) == 3
    world.sim.run(a.member.commit(at(5)))
    assert world.offset(T0) == 5
