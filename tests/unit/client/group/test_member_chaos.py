"""Groups under random faults that a seed determines.

Members join, leave, crash and hang; connections break, and the broker restarts. `World` checks
throughout that no partition has two owners in one generation and that committed offsets never
decrease. After the faults, every partition must have an owner.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers.group.group_world import Member, World

MakeWorld = Callable[..., World]
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "range,cooperative-sticky")
STEPS = 20
PARTITIONS = 5


class Storm:
    """A group, and the faults that it meets."""

    def __init__(self, world: World, strategy: str) -> None:
        self.world = world
        self.chance = world.sim.chance
        self.strategy = strategy
        self.made = 0
        self.hanging: list[Member] = []

    def come(self) -> None:
        if len(self.world.members) < 5:
            self.made += 1
            static = self.chance.random() < 0.2
            member = self.world.member(
                f"m{self.made}",
                partition_assignment_strategy=self.strategy,
                **({"group_instance_id": f"i{self.made}"} if static else {}),
            )
            member.poll_ms = 500.0
            member.start("t")

    def leave(self) -> None:
        if len(self.world.members) > 1:
            self.chance.choice(self.world.members).close()

    def die(self) -> None:
        if len(self.world.members) > 1:
            self.chance.choice(self.world.members).die()

    def hang(self) -> None:
        running = [member for member in self.world.members if member.is_running]
        if len(running) > 1:
            member = self.chance.choice(running)
            member.stop_polling()
            self.hanging.append(member)

    def wake(self) -> None:
        hanging = [member for member in self.hanging if member in self.world.members]
        if hanging:
            member = self.chance.choice(hanging)
            self.hanging.remove(member)
            member.resume()

    def cut(self) -> None:
        if self.world.sim.channels:
            self.chance.choice(self.world.sim.channels).drop()

    def cut_all(self) -> None:
        self.world.sim.drop_all()

    def restart(self) -> None:
        self.world.sim.restart()

    def lose_answers(self) -> None:
        until_s = self.world.sim.now_s() + 2
        chance = self.chance

        def fault(_: object) -> str | None:
            if self.world.sim.now_s() > until_s or chance.random() > 0.2:
                return None
            return chance.choice(["lose", "drop"])

        self.world.sim.on_request = fault

    def step(self) -> None:
        self.chance.choice(
            [
                self.come,
                self.come,
                self.leave,
                self.die,
                self.hang,
                self.wake,
                self.cut,
                self.cut_all,
                self.restart,
                self.lose_answers,
            ]
        )()
        self.world.advance(self.chance.choice([10, 500, 3_000, 12_000, 40_000]))


@pytest.mark.parametrize("seed", range(10))
def test_group_becomes_stable_after_random_faults(make_world: MakeWorld, seed: int) -> None:
    world = make_world(seed=seed)
    world.create("t", PARTITIONS)
    storm = Storm(world, STRATEGIES[seed % len(STRATEGIES)])
    storm.come()
    for _ in range(STEPS):
        storm.step()
    for member in storm.hanging:
        if member in world.members:
            member.resume()
    world.sim.on_request = None
    world.run_until_calm(t=PARTITIONS)
