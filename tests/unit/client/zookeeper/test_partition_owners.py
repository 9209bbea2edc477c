"""Claims of partitions: conflicts, pauses, and lost responses."""

from __future__ import annotations

import itertools

import pytest

from plog.zookeeper.operations import Create, Delete
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.group.zookeeper_world import (
    MakeWorld,
    numbers,
    pair,
)


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
    world.sim.run_until(lambda: world.owners("t") == {199: "other-0"})
    world.zookeeper.write(Delete(path="/consumers/g/owners/t/199"))
    world.run_until_calm(t=200)


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
