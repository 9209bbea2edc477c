"""Entry point of ``plog broker``, which Kafka's tools do not have: drain, restore and may-stop.

may_stop.py decides whether a broker may stop.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from plog.balance.leader_plan import Leaders
from plog.balance.placement import Placement
from plog.balance.replica_plan import leave_brokers
from plog.cli.admin_client import run_admin
from plog.cli.broker.may_stop import may_stop
from plog.cli.options import UsageError, add_admin_options, not_negative
from plog.cli.parser import add_examples, fail, first_line
from plog.cli.rebalance.cluster_state import ClusterState, read_cluster_state
from plog.cli.rebalance.plan import Plan
from plog.cli.rebalance.plan_execution import add_plan_options, carry_out
from plog.client.network.cluster import Cluster
from plog.types import TopicPartition

_Tool = Callable[[Cluster, argparse.Namespace], Coroutine[Any, Any, int]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Move replicas or leaders away from a broker, return its leaders, or check if it may stop."""
    tools = parser.add_subparsers(title="tools", metavar="TOOL", required=True)
    for name, configure_tool in (
        ("drain", configure_drain),
        ("restore", configure_restore),
        ("may-stop", configure_may_stop),
    ):
        summary = first_line(configure_tool.__doc__)
        configure_tool(tools.add_parser(name, help=summary, description=summary))
    add_examples(
        parser,
        (
            "stop broker 3 only if no partition would be affected",
            "plog broker may-stop 3 --bootstrap-server localhost:9092",
        ),
    )


def configure_drain(parser: argparse.ArgumentParser) -> None:
    """Move all replicas, or only the leaders, from a broker to other brokers."""
    _add_common(parser)
    add_plan_options(parser)
    parser.add_argument(
        "--leaders-only",
        action="store_true",
        help="keep the replicas, and let other replicas lead the partitions",
    )
    add_examples(
        parser,
        (
            "remove broker 3 from the cluster, which may have failed",
            "plog broker drain 3 --bootstrap-server localhost:9092",
        ),
        (
            "before maintenance, let other brokers lead the partitions of broker 3",
            "plog broker drain 3 --leaders-only --bootstrap-server localhost:9092",
        ),
    )
    _set_run(parser, drain)


def configure_restore(parser: argparse.ArgumentParser) -> None:
    """Give a broker its share of the leaders again, among the partitions that it has."""
    _add_common(parser)
    add_plan_options(parser, moves=False)
    add_examples(
        parser,
        (
            "after maintenance, let broker 3 lead partitions again",
            "plog broker restore 3 --bootstrap-server localhost:9092",
        ),
    )
    _set_run(parser, restore)


def configure_may_stop(parser: argparse.ArgumentParser) -> None:
    """Exit with 1 and name the partitions that would be affected if a broker stopped."""
    _add_common(parser)
    _set_run(parser, may_stop)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", type=not_negative, metavar="BROKER", help="id of the broker")
    add_admin_options(parser)


def _set_run(parser: argparse.ArgumentParser, tool: _Tool) -> None:
    parser.set_defaults(
        run=lambda arguments: run_admin(arguments, lambda cluster: tool(cluster, arguments))
    )


async def drain(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Run ``drain``. Raises UsageError, NotEnoughBrokers."""
    broker: int = arguments.broker
    state = await read_cluster_state(cluster, disable_rack_aware=arguments.disable_rack_aware)
    _check_known(state, broker)
    # The broker may lead partitions that prefer other leaders.
    led = [one for one, each in state.partitions.items() if each.leader == broker]
    stuck: list[TopicPartition] = []
    if arguments.leaders_only:
        plan, stuck = plan_without_leader(state, broker, led)
    else:
        plan = plan_without_replicas(state, broker)
    code = await carry_out(
        cluster,
        state,
        plan,
        arguments,
        elections={*plan.changes, *led} - {*stuck},
        command=f"plog broker drain {broker}" + " --leaders-only" * arguments.leaders_only,
    )
    for partition in sorted(stuck):
        fail(f"{partition}: broker {broker} has the only replica that is in sync")
    return code or int(bool(stuck))


def plan_without_replicas(state: ClusterState, broker: int) -> Plan:
    """Return the plan that moves all replicas away from a broker. Raises NotEnoughBrokers."""
    before = state.replicas
    others = {one: rack for one, rack in state.racks.items() if one != broker}
    placement = Placement(others, before, state.sizes)
    leave_brokers(placement, [broker])
    return _plan(state, placement.replicas)


def plan_without_leader(
    state: ClusterState, broker: int, led: Collection[TopicPartition]
) -> tuple[Plan, list[TopicPartition]]:
    """Return the plan that prefers other leaders, and the partitions that no other can lead.

    `led` are the partitions that the broker leads now.
    """
    leaders = Leaders(sorted(state.racks), state.replicas)
    stuck = leaders.leave(broker, state.may_lead, led=led)
    return _plan(state, leaders.replicas), stuck


async def restore(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Run ``restore``. Raises UsageError."""
    broker: int = arguments.broker
    state = await read_cluster_state(cluster, disable_rack_aware=True)
    _check_known(state, broker)
    if broker not in state.racks:
        raise UsageError(f"cannot give leaders to broker {broker}: it is not available; start it")
    hosted = [one for one, replicas in state.replicas.items() if broker in replicas]
    if not hosted:
        raise UsageError(
            f"cannot give leaders to broker {broker}: it has no replicas; to give it replicas, use"
            " plog rebalance"
        )
    plan = plan_with_leader(state, broker)
    preferred = [one for one, replicas in plan.after.items() if replicas[0] == broker]
    code = await carry_out(
        cluster,
        state,
        plan,
        arguments,
        elections=[one for one in preferred if state.may_lead(one, broker)],
        command=f"plog broker restore {broker}",
    )
    late = [one for one in hosted if not state.may_lead(one, broker)]
    if late:
        fail(
            f"broker {broker} is not in sync in {len(late)} of its {len(hosted)} partitions; when"
            " it is, run the command again"
        )
    return code or int(bool(late))


def plan_with_leader(state: ClusterState, broker: int) -> Plan:
    """Return the plan that lets a broker lead its share of the partitions that it has."""
    leaders = Leaders(sorted(state.racks), state.replicas)
    leaders.balance(state.may_lead, only_to=[broker])
    return _plan(state, leaders.replicas)


def _plan(state: ClusterState, after: dict[TopicPartition, list[int]]) -> Plan:
    return Plan(before=state.replicas, after=after, sizes=state.sizes, racks=state.racks)


def _check_known(state: ClusterState, broker: int) -> None:
    """Raise UsageError if a broker is neither available nor has replicas."""
    if broker in state.racks or any(broker in some for some in state.replicas.values()):
        return
    available = ", ".join(map(str, sorted(state.racks)))
    raise UsageError(f"unknown broker {broker}: the available brokers are {available}")
