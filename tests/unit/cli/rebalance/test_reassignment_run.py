"""plog/cli/rebalance/reassignment_run.py: the bytes that a progress bar shows."""

from __future__ import annotations

from plog.cli.rebalance.cluster_state import read_cluster_state
from plog.cli.rebalance.command import make_plan
from plog.cli.rebalance.reassignment_run import ReassignmentRun
from plog.client.network.socket_network import run_blocking
from tests.helpers.client.reassigning_cluster import ReassigningCluster


def test_progress_includes_replicas_that_are_being_copied() -> None:
    cluster = ReassigningCluster({1: None, 2: None, 3: None}, bytes_per_s=50)
    cluster.add_topic("t", [1, 2], [2, 1], [1, 2], size=100)
    state = run_blocking(read_cluster_state(cluster.as_cluster(), disable_rack_aware=False))
    plan = make_plan(state)
    assert sum(plan.copied.values()) == 200
    steps: list[int] = []
    run = ReassignmentRun(
        cluster.as_cluster(),
        plan,
        state,
        is_interrupted=lambda: False,
        say=lambda text: None,
        warn=lambda text: None,
        advance=steps.append,
        measures=True,
    )
    run_blocking(run.move(parallel=1, throttle=None))
    # 25 bytes of one replica at a time, every half second.
    assert steps == [25] * 8
    assert len(run.outcome.moved) == len(plan.changes)
