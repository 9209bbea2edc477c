"""Group members and plog's own client library in clusters: they are active, and bugs are found."""

from __future__ import annotations

import pytest

from tests.sim.checker import Anomaly
from tests.sim.cluster.cluster_world import ClusterWorld
from tests.sim.cluster.library.planted_library_bugs import LIBRARY_PLANTS
from tests.sim.planted_bugs import planted

STEPS = 400
BROKERS = 3
SEEDS = 12
"""The largest number of seeds that a bug may take."""
ACTIVE_SEED = 9
"""A seed with group members, and with a producer and a group of the library."""

FOUND_AS = {
    "accept-old-generations": {"stale-commit", "stale-heartbeat", "stale-sync"},
    "forget-groups": {"generation-fell", "stale-commit", "two-assignments", "two-owners"},
    "commit-ahead": {"phantom-commit"},
    "no-sequences": {"duplicate", "nonmonotonic-send"},
    "skip-committed": {"poll-skip"},
}
FIRST_SEEDS = {"accept-old-generations": 7}
"""A seed near one that finds the bug, by bug; others begin with `ACTIVE_SEED`."""


def run_all(first: int) -> None:
    """Run seeds until one shows an anomaly."""
    for seed in range(first, first + SEEDS):
        ClusterWorld(seed, STEPS, BROKERS).run()


def test_group_members_and_the_library_are_active() -> None:
    world = ClusterWorld(ACTIVE_SEED, STEPS, BROKERS)
    world.run()
    generations = {name: view.assigned_generation for name, view in world.groups.views.items()}
    assert generations["group-0"] > 1
    assert generations["library"] > 1
    assert world.counts["library records acknowledged"]
    assert world.counts["library records polled"]


@pytest.mark.parametrize("plant", sorted(FOUND_AS))
def test_planted_bug_is_found_in_a_cluster(plant: str) -> None:
    with planted(plant), pytest.raises(Anomaly) as found:
        run_all(FIRST_SEEDS.get(plant, ACTIVE_SEED))
    assert found.value.name in FOUND_AS[plant]


def test_every_planted_bug_of_the_library_has_a_test() -> None:
    assert set(LIBRARY_PLANTS) <= set(FOUND_AS)
