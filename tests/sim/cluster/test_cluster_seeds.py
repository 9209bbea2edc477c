"""A few seeds of clusters that run with every commit; more and longer ones with ``-m long``.

docs/reliability.md explains how to replay a seed.
"""

from __future__ import annotations

import pytest

from tests.sim.__main__ import main
from tests.sim.cluster.cluster_plan import MAX_BROKERS, choose_brokers
from tests.sim.cluster.cluster_world import ClusterWorld

STEPS = 400
SEEDS = (2, 3, 6, 8)
"""Seeds with few faults at first, so that clients get something done."""
LONG_SEEDS = range(1000, 1200)
LONG_STEPS = 1_000


@pytest.mark.parametrize("seed", SEEDS)
def test_cluster_seed_shows_no_anomaly(seed: int) -> None:
    world = ClusterWorld(seed, STEPS, brokers=3)
    world.run()
    assert world.history.acknowledged_count
    assert world.history.polled_count
    assert world.groups.committed_count
    assert world.counts["elections"]


def test_seed_chooses_every_number_of_brokers() -> None:
    assert {choose_brokers(seed) for seed in range(40)} == set(range(1, MAX_BROKERS + 1))


def test_cluster_seed_replays_exactly() -> None:
    traces: list[list[str]] = []
    for _ in range(2):
        lines: list[str] = []
        ClusterWorld(3, STEPS, brokers=2, trace=lines.append, trace_operations=True).run()
        traces.append(lines)
    assert traces[0] == traces[1]
    assert len(traces[0]) > STEPS


def test_command_line_runs_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--steps", "60", "--brokers", "2"]) == 0
    assert capsys.readouterr().out.startswith("seed 3: brokers 2, ")


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_long_run_of_a_cluster_shows_no_anomaly(seed: int) -> None:
    brokers = max(2, choose_brokers(seed))
    ClusterWorld(seed, LONG_STEPS, brokers).run()
