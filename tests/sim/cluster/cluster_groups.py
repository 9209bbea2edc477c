"""The groups of a cluster: their offsets, their members, and the terms of their coordinators.

A group's coordinator is the leader of its partition of `__consumer_offsets`, so that it moves with
the leader. Its life, in the sense of group_history.py, is a leader epoch of this partition.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from plog.types import TopicPartition
from plogd.coordinator.group.group_coordinator import OFFSETS_TOPIC, partition_for
from tests.sim.client import Client
from tests.sim.group_plan import GroupPlan, choose_instances
from tests.sim.members import Member
from tests.sim.outsiders import Outsider

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld
    from tests.sim.network import Connection

_OUTSIDERS = 2
"""Clients of each group that commit and read offsets without being members."""
_PARTITIONS = (
    TopicPartition("kept", 1),
    TopicPartition("packed", 0),
    TopicPartition("stamped", 0),
    TopicPartition("sized", 0),
)
"""The partitions that members divide among themselves, of topics that exist in any case."""
_OUTSIDE = TopicPartition("kept", 0)
_PAUSE_MS = 250.0
"""Longer than with one broker, because a run of a cluster takes more time."""
_MAX_RELOADS = 1_000_000


def make_cluster_groups(chance: random.Random) -> list[GroupPlan]:
    """Return the groups of a seed. The first one often has members, the others have none."""
    count = chance.randint(1, 2)
    members = chance.choice((0, 2, 3, 5))
    return [_make_group(chance, number, 0 if number else members) for number in range(count)]


def _make_group(chance: random.Random, number: int, members: int) -> GroupPlan:
    instances = choose_instances(chance, members)
    return GroupPlan(
        name=f"group-{number}",
        kind=chance.choice(("eager", "cooperative", "connect")),
        instances=instances,
        partitions=_PARTITIONS[: chance.randint(1, len(_PARTITIONS))] if members else (),
        outside=_OUTSIDE,
        session_timeout_ms=chance.choice((1_000, 3_000, 10_000)),
        rebalance_timeout_ms=chance.choice((1_000, 3_000)),
        away_ms=chance.choice((200, 2_000)),
        quits=chance.choice((0.01, 0.05, 0.15)),
        pause_ms=_PAUSE_MS,
    )


def group_clients(cluster: ClusterWorld) -> list[Client]:
    """Return the clients of all groups."""
    clients: list[Client] = []
    for plan in cluster.group_plans:
        clients += [Outsider(cluster, f"{plan.name}.o{n}", plan) for n in range(_OUTSIDERS)]
        clients += [
            Member(cluster, f"{plan.name}.m{number}", plan, instance)
            for number, instance in enumerate(plan.instances)
        ]
    return clients


def coordinator_term(cluster: ClusterWorld, group: str, connection: Connection) -> int | None:
    """Return a number of the life of the coordinator at the other end; later ones are larger.

    None if it is not the coordinator. A coordinator that could not write its records reloads them,
    which is also a new life.
    """
    count = cluster.config.offsets_topic_num_partitions
    epoch = cluster.leader_epoch(OFFSETS_TOPIC, partition_for(group, count), connection)
    process = cluster.machines[connection.broker_id].process
    if epoch is None or process is None:
        return None
    return epoch * _MAX_RELOADS + process.reloads
