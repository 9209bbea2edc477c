"""The simulator finds the bugs for which it exists: each one is planted and must be found.

The monitor, which inspects the broker, is off: only what clients can observe counts.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.sim.checker import Anomaly
from tests.sim.planted_bugs import PLANTS, planted
from tests.sim.world import World

STEPS = 400
SEEDS = range(61, 121)
SEEDS_WITH_EXCEPTIONS = range(261, 321)
SEEDS_WITH_GROUPS = range(1, 31)

LOSS = {
    "lost-write",
    "unseen",
    "inconsistent-offsets",
    "high-watermark-fell",
    "false-out-of-order",  # The previous batch was acknowledged and is forgotten.
    "false-out-of-range",  # A reader is positioned at a former end of the log.
    "poll-skip",  # A reader arrives there before the checker.
}
FOUND_AS = {
    "ack-before-flush": LOSS,
    "skip-dir-sync": LOSS,
    "ack-before-hw": LOSS,
    "forget-producers": {"duplicate", "nonmonotonic-send"},
    "forget-refusals": {"nonmonotonic-send", "false-out-of-order"},
    "keep-unwritten-sequences": LOSS | {"nonmonotonic-send"},
    "ack-unwritten": LOSS | {"false-out-of-order"},
}
FOUND_IN_COMPACTED_LOGS_AS = {
    "clean-above-lso": LOSS | {"lost-tombstone"},
    "drop-last-batches": {"duplicate"},
    "drop-tombstones": {"lost-tombstone"},
    # Segments are missing, or old and new segments contain the same offsets. The last batches of
    # producers may be missing, too.
    "swap-without-dir-sync": LOSS
    | {"duplicate", "early-deletion", "int-nonmonotonic-poll", "lost-tombstone"},
}
FOUND_BY_A_FOLLOWER_AS = {
    # The durable end would be above the end of the log.
    "keep-old-tickets": {"lost-write", "crash"},
}
FOUND_BY_EXCEPTIONS_AS = {
    "undo-os-errors-only": LOSS
    | {"duplicate", "int-nonmonotonic-poll", "read-above-high-watermark"},
}
GROUP_LOSS = {
    "generation-fell",
    "spurious-reset",
    "committed-offset-fell",
    "two-owners",
    "two-assignments",
    "stale-sync",
    "stale-commit",
    "stale-heartbeat",
}
FOUND_IN_GROUPS_AS = {
    "answer-before-durable": GROUP_LOSS,
    "accept-old-generations": {"stale-commit", "stale-heartbeat", "stale-sync"},
    "forget-groups": GROUP_LOSS,
    "no-offset-while-loading": {"spurious-reset"},
    "keep-dead-members": {"stuck"},
    "forget-fencing": {"two-static-members", "bad-answer"},
    "mix-up-assignments": {"wrong-assignment"},
}
MEMBERS = 24


def run_all(seeds: Iterable[int], members: int, *, exceptions: bool = False) -> None:
    """Run the seeds until one shows an anomaly."""
    for seed in seeds:
        World(seed, STEPS, with_monitor=False, members=members, exceptions=exceptions).run()


@pytest.mark.parametrize("plant", sorted(FOUND_AS))
def test_planted_bug_is_found(plant: str) -> None:
    with planted(plant), pytest.raises(Anomaly) as found:
        run_all(SEEDS, members=0)
    assert found.value.name in FOUND_AS[plant]


@pytest.mark.parametrize("plant", sorted(FOUND_IN_COMPACTED_LOGS_AS))
def test_planted_bug_in_the_log_cleaner_is_found(plant: str) -> None:
    with planted(plant), pytest.raises(Anomaly) as found:
        run_all(SEEDS, members=0)
    assert found.value.name in FOUND_IN_COMPACTED_LOGS_AS[plant]


@pytest.mark.parametrize("plant", sorted(FOUND_BY_A_FOLLOWER_AS))
def test_planted_bug_in_a_truncation_is_found(plant: str) -> None:
    with planted(plant), pytest.raises(Anomaly) as found:
        run_all(SEEDS, members=0)
    assert found.value.name in FOUND_BY_A_FOLLOWER_AS[plant]


@pytest.mark.parametrize("plant", sorted(FOUND_IN_GROUPS_AS))
def test_planted_bug_in_the_coordinator_is_found(plant: str) -> None:
    with planted(plant), pytest.raises(Anomaly) as found:
        run_all(SEEDS_WITH_GROUPS, members=MEMBERS)
    assert found.value.name in FOUND_IN_GROUPS_AS[plant]


@pytest.mark.parametrize("plant", sorted(FOUND_BY_EXCEPTIONS_AS))
def test_planted_bug_is_found_by_injected_exceptions(plant: str) -> None:
    with planted(plant), pytest.raises(Anomaly) as found:
        run_all(SEEDS_WITH_EXCEPTIONS, members=0, exceptions=True)
    assert found.value.name in FOUND_BY_EXCEPTIONS_AS[plant]


def test_every_plant_has_a_test() -> None:
    tested = {
        *FOUND_AS,
        *FOUND_IN_COMPACTED_LOGS_AS,
        *FOUND_BY_A_FOLLOWER_AS,
        *FOUND_IN_GROUPS_AS,
        *FOUND_BY_EXCEPTIONS_AS,
    }
    assert tested == set(PLANTS)


def test_monitor_detects_records_that_are_readable_before_they_are_durable() -> None:
    with planted("ack-before-flush"), pytest.raises(Anomaly) as found:
        World(1, STEPS).run()
    assert found.value.name == "visible-before-durable"
