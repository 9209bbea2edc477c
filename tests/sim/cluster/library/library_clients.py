"""The applications with plog's client library that a seed has, and their group."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from plog.types import TopicPartition
from tests.sim.cluster.library.library_client import LIBRARY_TOPICS, LibraryClient
from tests.sim.cluster.library.library_consumer import LibraryConsumer
from tests.sim.cluster.library.library_producer import LibraryProducer
from tests.sim.group_plan import GroupPlan

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld

_GROUP = "library"
_SHARE = 0.6
"""The share of seeds that have a group of library consumers."""


def make_library_group(chance: random.Random) -> list[GroupPlan]:
    """Return the group of the seed's library consumers, if any."""
    if chance.random() >= _SHARE:
        return []
    topics = chance.sample(LIBRARY_TOPICS, chance.randint(1, len(LIBRARY_TOPICS)))
    return [
        GroupPlan(
            name=_GROUP,
            kind=chance.choice(("eager", "cooperative")),
            instances=(),
            partitions=[TopicPartition(topic, 0) for topic in topics],
            # Not a topic of the members.
            outside=TopicPartition("sized", 0),
            session_timeout_ms=chance.choice((1_000, 3_000, 10_000)),
            rebalance_timeout_ms=chance.choice((1_000, 5_000)),
            away_ms=0,
            quits=0.0,
            commits_metadata=False,
        )
    ]


def library_clients(cluster: ClusterWorld) -> list[LibraryClient]:
    """Return the applications of a seed."""
    chance = random.Random(f"library {cluster.seed}")
    clients: list[LibraryClient] = [
        LibraryProducer(cluster, f"lp{number}") for number in range(chance.randint(0, 2))
    ]
    if chance.random() < 0.3:
        clients.append(LibraryConsumer(cluster, "lc", None))
    for plan in cluster.group_plans:
        if plan.name == _GROUP:
            clients += [
                LibraryConsumer(cluster, f"{_GROUP}.m{number}", plan)
                for number in range(chance.randint(1, 3))
            ]
    return clients
