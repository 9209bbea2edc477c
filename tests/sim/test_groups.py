"""Many members: 200 that join and leave, in several groups and in one; a storm of 1,000."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.sim.world import World

STEPS = 300
CROWD = 200
STORM = 1_000
STORM_MS = 60_000.0


def only_group(world: World, *, kind: str, members: int) -> None:
    """Put all members into the world's first group, as dynamic members."""
    first = world.group_plans[0]
    world.group_plans[:] = [replace(first, kind=kind, instances=[None] * members)]


def run_until(world: World, done: Callable[[], bool], limit_ms: float) -> None:
    """Run `world` until the condition is true. Raises Anomaly if that takes too long."""
    world.run_until(done, limit_ms, "the members")


@pytest.mark.parametrize("seed", [5])
def test_200_members_of_several_groups_show_no_anomaly(seed: int) -> None:
    world = World(seed, 700, members=CROWD)
    assert len(world.group_plans) > 1
    world.run()
    assert all(view.assigned_generation > 1 for view in world.groups.views.values())
    assert world.groups.committed_count > CROWD


@pytest.mark.parametrize("kind", ["eager", "cooperative"])
def test_200_members_of_one_group_show_no_anomaly(kind: str) -> None:
    world = World(5, STEPS, members=CROWD)
    only_group(world, kind=kind, members=CROWD)
    world.run()
    [view] = [one for one in world.groups.views.values() if one.registers]
    assert view.assigned_generation > 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_200_members_show_no_anomaly_in_a_long_run(seed: int) -> None:
    World(seed, 2_000, members=CROWD).run()


def test_storm_of_1000_joins_ends_in_one_generation() -> None:
    world = World(1, 1 << 30, members=STORM)
    only_group(world, kind="eager", members=STORM)
    [plan] = world.group_plans
    plan = world.group_plans[0] = replace(
        plan,
        away_ms=1,
        quits=0.0,
        is_well_behaved=True,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=20_000,
    )
    world.service.start()
    run_until(world, lambda: world.service.is_serving, STORM_MS)
    world._start_clients()
    run_until(world, plan.is_founded, STORM_MS)

    def is_one_generation() -> bool:
        generations = {member.assigned_generation for member in plan.present}
        return len(plan.present) == STORM and len(generations) == 1 and -1 not in generations

    run_until(world, is_one_generation, STORM_MS)
    owned = [partition for member in plan.present for partition in member.owned]
    assert sorted(owned) == sorted(plan.partitions)
