"""The simulator finds the bugs it is there for: each is put in on purpose and must be found.

The monitor, which looks into the broker, is off: what counts is what clients can see.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.sim.checker import Anomaly
from tests.sim.plants import PLANTS, planted
from tests.sim.world import World

STEPS = 400
SEEDS = range(1, 31)

LOSS = {
    "lost-write",
    "unseen",
    "inconsistent-offsets",
    "high-watermark-fell",
    "false-out-of-order",  # The batch before was acknowledged, and is forgotten.
}
FOUND_AS = {
    "ack-before-flush": LOSS,
    "skip-dir-sync": LOSS,
    "ack-before-hw": {"lost-write", "unseen"},
    "forget-producers": {"duplicate"},
}


def run_all(seeds: Iterable[int]) -> None:
    """Run until one shows an anomaly."""
    for seed in seeds:
        World(seed, STEPS, with_monitor=False).run()


@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_a_planted_bug_is_found(plant: str) -> None:
    with planted(plant), pytest.raises(Anomaly) as found:
        run_all(SEEDS)
    assert found.value.name in FOUND_AS[plant]


def test_the_monitor_sees_records_shown_before_they_are_durable() -> None:
    with planted("ack-before-flush"), pytest.raises(Anomaly) as found:
        World(1, STEPS).run()
    assert found.value.name == "visible-before-durable"
