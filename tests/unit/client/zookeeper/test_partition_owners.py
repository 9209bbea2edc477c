"""Claims of partitions: conflicts, pauses, and lost responses."""

from __future__ import annotations

import itertools

import pytest

from plog.client.zookeeper.consumer_registration import RegistrationLost
from plog.types import TopicPartition
from plog.zookeeper.operations import Create, Delete
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.group.zookeeper_world import (
    MakeWorld,
    numbers,
    pair,
)

T0 = TopicPartition("t", 0)


def test_conflict_releases_all_claims_until_the_other_owner_is_gone(
    make_zookeeper_world: MakeWorld,
) -> None:
    world = make_zookeeper_world()
    world.create("t", 200)
    for path in ("/consumers", "/consumers/g", "/consumers/g/owners", "/consumers/g/owners/t"):
        world.zookeeper.write(Create(path=path))
    # In the last transaction of the claims, so others were applied before.
    world.zookeeper.write(Create(path="/consumers/g/owners/t/199", data=b"other-0"))
    a = world.member("a", "t")
    claimed = 0

    def note(client: MockZooKeeperClient, request: Request) -> Fault:
        nonlocal claimed
        claimed = max(claimed, len(world.owners("t")))
        return Fault.NONE

    world.zookeeper.on_request = note
    world.advance(10_000)
    assert a.owned == frozenset()
    assert claimed > 100
    assert a.listener.calls == []
    # Meanwhile, others can claim the partitions: the consumer holds its claims only for a moment.
    free = 0
    for _ in range(100):
        world.advance(100)
        free += world.owners("t") == {199: "other-0"}
    assert free > 80
    world.zookeeper.write(Delete(path="/consumers/g/owners/t/199"))
    world.run_until_calm(t=200)


def test_consumer_that_appears_during_the_claims_gets_its_share_at_once(
    make_zookeeper_world: MakeWorld,
) -> None:
    world = make_zookeeper_world()
    world.create("t", 4)
    is_alone = True

    def appear(client: MockZooKeeperClient, request: Request) -> Fault:
        nonlocal is_alone
        if is_alone and any("/owners/t/" in one.path for one in request.operations):
            is_alone = False
            data = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}'
            world.zookeeper.write(Create(path="/consumers/g/ids/zzz", data=data))
        return Fault.NONE

    world.zookeeper.on_request = appear
    a = world.member("a", "t")
    world.advance(5_000)
    assert a.listener.calls == [("assigned", ("t-0", "t-1"))]


def test_pauses_between_claims_are_bounded(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world()
    world.create("t", 1)
    for path in ("/consumers", "/consumers/g", "/consumers/g/owners", "/consumers/g/owners/t"):
        world.zookeeper.write(Create(path=path))
    world.zookeeper.write(Create(path="/consumers/g/owners/t/0", data=b"other-0"))
    times: list[float] = []

    def note(client: MockZooKeeperClient, request: Request) -> Fault:
        if any(one.path == "/consumers/g/owners/t/0" for one in request.operations):
            times.append(world.sim.now_s())
        return Fault.NONE

    world.zookeeper.on_request = note
    world.member("a", "t")
    world.advance(60_000)
    pauses = [later - sooner for sooner, later in itertools.pairwise(times)]
    # retry.backoff.ms and retry.backoff.max.ms, with a jitter of 20 percent.
    assert 0.08 < pauses[0] < 0.13
    assert 0.7 < max(pauses) < 1.3


def test_late_watch_delays_the_rebalance_but_gives_no_partition_two_owners(
    make_zookeeper_world: MakeWorld,
) -> None:
    # Its own writes would let its server catch up.
    world, a, b = pair(
        make_zookeeper_world, enable_auto_commit=True, auto_commit_interval_ms=600_000
    )
    a.client.hold()
    c = world.member("c", "t")
    world.advance(20_000)
    assert len(numbers(a)) == 2
    a.client.catch_up()
    world.run_until_calm(t=4)
    assert sorted(len(numbers(one)) for one in (a, b, c)) == [1, 1, 2]


@pytest.mark.parametrize("seed", range(8))
def test_lost_responses_leave_neither_registrations_nor_owners(
    make_zookeeper_world: MakeWorld, seed: int
) -> None:
    world = make_zookeeper_world(seed)
    world.create("t", 5)
    chance = world.sim.chance

    def fault(client: MockZooKeeperClient, request: Request) -> Fault:
        if world.sim.now_s() > 20 or chance.random() > 0.2:
            return Fault.NONE
        return chance.choice([Fault.LOSE_BEFORE, Fault.LOSE_AFTER])

    world.zookeeper.on_request = fault
    members = [world.member(name, "t") for name in "abc"]
    world.advance(20_000)
    members.pop().close()
    world.run_until_calm(t=5)
    ids = world.zookeeper.names("/consumers/g/ids")
    assert sorted(ids) == sorted(one.consumer_id for one in members)


def test_owner_that_is_not_registered_any_more_releases_nothing(
    make_zookeeper_world: MakeWorld,
) -> None:
    world, a, b = pair(make_zookeeper_world)
    owners = world.owners("t")
    taken = next(iter(b.owned))
    # As a delayed request of a former session: it names a partition of the next owner.
    a.zookeeper_coordination._owners.claimed.add(taken)
    a.zookeeper_coordination._registration._path += "-former"
    with pytest.raises(RegistrationLost):
        world.sim.run(a.zookeeper_coordination._owners.release())
    assert world.owners("t") == owners


def test_repeated_release_does_not_remove_the_next_owner(make_zookeeper_world: MakeWorld) -> None:
    world, a, b = pair(make_zookeeper_world)
    a, b = (a, b) if T0 in a.owned else (b, a)
    loses = True

    def lose_response(client: MockZooKeeperClient, request: Request) -> Fault:
        nonlocal loses
        is_release = any(isinstance(one, Delete) for one in request.operations)
        if client is not a.client or not is_release or not loses:
            return Fault.NONE
        loses = False
        # The consumer connects to a server that has not applied the release yet.
        a.client.hold()
        # The next owner is faster than the connection that replaces the lost one.
        other = world.zookeeper.sessions.open(60_000)
        world.sim.call_later(
            0.001,
            lambda: world.zookeeper.apply(
                [Create(path="/consumers/g/owners/t/0", data=b"c-0", ephemeral=True)],
                session=other.id,
            ),
        )
        return Fault.LOSE_AFTER

    world.zookeeper.on_request = lose_response
    world.write_topic("t", 6)
    world.advance(20_000)
    assert not loses
    assert world.owners("t")[0] == "c-0"
    assert T0 not in a.owned | b.owned
