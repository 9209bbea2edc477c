"""Groups of ZooKeeper under random faults that a seed determines.

Members join, leave, crash and hang; connections break, sessions expire, watches are late, and
ZooKeeper loses its quorum. `ZooKeeperWorld` checks throughout that no partition has two owners and
that committed offsets never decrease. After the faults, every partition must have one owner.
"""

from __future__ import annotations

import pytest

from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.group.zookeeper_world import MakeWorld, ZooKeeperMember, ZooKeeperWorld

STEPS = 25


class Storm:
    """A group, and the faults that it meets."""

    def __init__(self, world: ZooKeeperWorld) -> None:
        self.world = world
        self.chance = world.sim.chance
        self.made = 0
        self.partitions = 5
        self.hanging: list[ZooKeeperMember] = []
        self.held: list[ZooKeeperMember] = []

    def any(self) -> ZooKeeperMember:
        return self.chance.choice(self.world.all)

    def come(self) -> None:
        if len(self.world.all) < 5:
            self.made += 1
            member = self.world.member(f"m{self.made}")
            member.poll_ms = 500.0
            member.start("t")
            self.world.advance(1)

    def leave(self) -> None:
        if len(self.world.all) > 1:
            self.any().close()

    def unsubscribe(self) -> None:
        member = self.any()

        async def pause() -> None:
            await member.member.leave("unsubscribed")
            await self.world.sim.sleep(self.chance.choice([0.0, 1.0]))
            if member in self.world.all:
                member.member.subscribe(["t"], None, member.listener)

        self.world.sim.spawn(pause(), "unsubscribing")

    def die(self) -> None:
        if len(self.world.all) > 1:
            self.any().die()

    def hang(self) -> None:
        running = [member for member in self.world.all if member.is_running]
        if len(running) > 1:
            member = self.chance.choice(running)
            member.stop_polling()
            self.hanging.append(member)

    def wake(self) -> None:
        while self.hanging:
            member = self.hanging.pop()
            if member in self.world.all:
                member.resume()

    def break_connection(self) -> None:
        self.any().client.lose_connection()

    def cut(self) -> None:
        member = self.any()
        member.client.cut()
        self.held.append(member)

    def hold(self) -> None:
        member = self.any()
        member.client.hold()
        self.held.append(member)

    def restore(self) -> None:
        while self.held:
            member = self.held.pop()
            if member in self.world.all:
                member.client.restore()
                member.client.catch_up()

    def expire(self) -> None:
        self.world.zookeeper.expire(self.any().client.session_id)

    def lose_quorum(self) -> None:
        self.world.zookeeper.lose_quorum()
        self.world.advance(self.chance.choice([100, 5_000, 30_000]))
        self.world.zookeeper.restore_quorum()

    def lose_responses(self) -> None:
        until_s = self.world.sim.now_s() + 2

        def fault(client: MockZooKeeperClient, request: Request) -> Fault:
            if self.world.sim.now_s() > until_s or self.chance.random() > 0.2:
                return Fault.NONE
            return self.chance.choice([Fault.LOSE_BEFORE, Fault.LOSE_AFTER])

        self.world.zookeeper.on_request = fault

    def add_partitions(self) -> None:
        if self.partitions < 8:
            self.partitions += 1
            self.world.write_topic("t", self.partitions)

    def step(self) -> None:
        self.chance.choice(
            [
                self.come,
                self.come,
                self.leave,
                self.unsubscribe,
                self.die,
                self.hang,
                self.wake,
                self.break_connection,
                self.cut,
                self.hold,
                self.restore,
                self.restore,
                self.expire,
                self.lose_quorum,
                self.lose_responses,
                self.add_partitions,
            ]
        )()
        self.world.advance(self.chance.choice([1, 10, 500, 3_000, 12_000, 40_000]))


SEEDS = [*range(12), *[pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 200)]]


@pytest.mark.parametrize("seed", SEEDS)
def test_group_becomes_stable_after_random_faults(
    make_zookeeper_world: MakeWorld, seed: int
) -> None:
    world = make_zookeeper_world(seed)
    world.create("t", 5)
    storm = Storm(world)
    storm.come()
    for _ in range(STEPS):
        storm.step()
    storm.wake()
    storm.restore()
    world.zookeeper.on_request = lambda *_: Fault.NONE
    world.run_until_calm(t=storm.partitions)
    owners = {f"{one.consumer_id}-0" for one in world.all if one.owned}
    assert set(world.owners("t").values()) == owners
