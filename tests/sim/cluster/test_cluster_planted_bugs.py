"""The simulator finds bugs of replication: each one is planted and must be found."""

from __future__ import annotations

import pytest

from tests.sim.checker import Anomaly
from tests.sim.cluster.cluster_world import ClusterWorld
from tests.sim.cluster.planted_replication_bugs import REPLICATION_PLANTS
from tests.sim.planted_bugs import planted

STEPS = 400
BROKERS = 3
SEEDS = 12
"""The largest number of seeds that a bug may take."""

LOSS = {
    "committed-not-durable",
    "high-watermark-fell",
    "inconsistent-offsets",
    "lost-write",
    "replicas-differ",
    "unseen",
}
OFFSET_LOSS = {"committed-offset-fell", "spurious-reset"}
FOUND_AS = {
    "truncate-to-hw": LOSS,
    "hw-without-pending": LOSS,
    "fetch-before-sync": LOSS,
    "no-epoch-fence": LOSS | {"stuck", "crash"},
    "ignore-epoch-floor": {"two-writers", "epoch-reused"},
    "join-below-epoch-start": LOSS,
    "follower-forgets-producers": {"duplicate", "nonmonotonic-send"},
    "lead-after-loss": LOSS | {"role-after-loss"},
    "answer-before-commit": OFFSET_LOSS,
}
FIRST_SEEDS = {
    "hw-without-pending": 9,
    "ignore-epoch-floor": 3,
    "join-below-epoch-start": 2,
    "lead-after-loss": 12,
    "no-epoch-fence": 5,
}
"""A seed near one that finds the bug, by bug; others begin with seed 1."""


def run_all(first: int) -> None:
    """Run seeds until one shows an anomaly."""
    for seed in range(first, first + SEEDS):
        ClusterWorld(seed, STEPS, BROKERS).run()


@pytest.mark.parametrize("plant", sorted(FOUND_AS))
def test_planted_bug_in_replication_is_found(plant: str) -> None:
    with planted(plant), pytest.raises(Anomaly) as found:
        run_all(FIRST_SEEDS.get(plant, 1))
    assert found.value.name in FOUND_AS[plant]


def test_every_plant_in_replication_has_a_test() -> None:
    assert set(FOUND_AS) == set(REPLICATION_PLANTS)
