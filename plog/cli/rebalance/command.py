"""Entry point of ``plog rebalance``, which Kafka's tools do not have.

`plog.balance` defines when replicas and leaders are balanced, and which of them move.
"""

from __future__ import annotations

import argparse

from plog.balance.leader_plan import Leaders
from plog.balance.placement import Placement, unknown_brokers
from plog.balance.replica_plan import balance_replicas
from plog.cli.admin_client import run_admin
from plog.cli.options import UsageError, add_admin_options
from plog.cli.parser import add_examples
from plog.cli.rebalance.cluster_state import ClusterState, read_cluster_state
from plog.cli.rebalance.plan import Plan
from plog.cli.rebalance.plan_execution import add_plan_options, carry_out
from plog.client.network.cluster import Cluster


def configure(parser: argparse.ArgumentParser) -> None:
    """Distribute replicas and leaders evenly over brokers, with the least data to copy."""
    add_admin_options(parser)
    add_plan_options(parser)
    add_examples(
        parser,
        (
            "show what would be moved, for example after a broker was added",
            "plog rebalance --bootstrap-server localhost:9092 --dry-run",
        ),
        (
            "move it, with at most 50 MB per second, and wait for the end",
            "plog rebalance --bootstrap-server localhost:9092 --throttle 50000000",
        ),
    )
    parser.set_defaults(run=lambda arguments: run_admin(arguments, lambda c: run(c, arguments)))


async def run(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Make a plan, and carry it out. Raises UsageError."""
    state = await read_cluster_state(cluster, disable_rack_aware=arguments.disable_rack_aware)
    plan = make_plan(state)
    return await carry_out(
        cluster, state, plan, arguments, elections=list(plan.after), command="plog rebalance"
    )


def make_plan(state: ClusterState) -> Plan:
    """Return the plan for all partitions of a cluster. Raises UsageError if a broker is missing."""
    before = state.replicas
    missing = unknown_brokers(before, state.racks)
    if missing:
        broker, count = next(iter(missing.items()))
        raise UsageError(
            f"cannot balance the cluster: broker {broker} is not available, and has {count}"
            f" replicas; start it, or move its replicas with 'plog broker drain {broker}'"
        )
    placement = Placement(state.racks, before, state.sizes)
    balance_replicas(placement)
    leaders = Leaders(placement.brokers, placement.replicas)
    leaders.balance(state.may_lead)
    return Plan(before=before, after=leaders.replicas, sizes=state.sizes, racks=state.racks)
