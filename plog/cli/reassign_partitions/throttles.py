"""Replication throttles of reassignments, in the settings of topics and brokers.

A topic lists its throttled replicas, and each broker has a rate in bytes per second, which all its
throttled replicas share (KIP-73). Replicas that are in sync are not throttled, so that the lists
affect only the copying of moved replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from plog.client.admin.configs import ConfigAdmin
from plog.client.admin.values import AlterConfig, ConfigResource, Reassignment
from plog.client.network.cluster import Cluster
from plog.enums import AlterOperation
from plog.types import TopicPartition

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LOG_DIR_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"

ALL_REPLICAS: Final = "*"
"""The list of an operator who throttles all replicas of a topic."""


class PartitionMove(NamedTuple):
    """The brokers that a partition is copied from, and those that it is copied to."""

    sources: frozenset[int]
    destinations: frozenset[int]


def proposed_moves(
    ongoing: Mapping[TopicPartition, Reassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, PartitionMove]:
    """Return the moves of the ongoing reassignments, and of those that `proposed` starts.

    `current` contains the replicas of the proposed partitions. A topic has a single list of
    throttled replicas, so it must also contain those of the ongoing moves.
    """
    moves = {
        partition: PartitionMove(
            # The replicas include those that are being added.
            frozenset(moving.replicas) - frozenset(moving.adding_replicas),
            frozenset(moving.adding_replicas),
        )
        for partition, moving in ongoing.items()
    }
    for partition, replicas in proposed.items():
        known = moves.get(partition)
        sources = frozenset(current[partition]) if known is None else known.sources
        moves[partition] = PartitionMove(sources, frozenset(replicas) - sources)
    return moves


def throttled_replicas(
    moves: Mapping[TopicPartition, PartitionMove],
) -> dict[str, tuple[str, str]]:
    """Return each topic's throttled replicas, at the leaders and at the followers.

    >>> move = PartitionMove(frozenset([1, 2]), frozenset([3]))
    >>> throttled_replicas({TopicPartition("t", 0): move})
    {'t': ('0:1,0:2', '0:3')}
    """
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for partition, move in moves.items():
        number, topic = partition.partition, partition.topic
        # Each source may become the leader during the move.
        leaders.setdefault(topic, set()).update(f"{number}:{one}" for one in move.sources)
        followers.setdefault(topic, set()).update(f"{number}:{one}" for one in move.destinations)
    return {
        topic: (",".join(sorted(leaders[topic])), ",".join(sorted(followers[topic])))
        for topic in sorted(leaders)
    }


async def set_throttle(
    cluster: Cluster, moves: Mapping[TopicPartition, PartitionMove], rate: int
) -> None:
    """Limit the brokers of the moves to `rate` bytes per second. Raises the first error."""
    admin = ConfigAdmin(cluster)
    # Topics come first: a rate without throttled replicas has no effect.
    topics = {
        ConfigResource.topic(topic): [
            AlterConfig(LEADER_REPLICAS, leaders),
            AlterConfig(FOLLOWER_REPLICAS, followers),
        ]
        for topic, (leaders, followers) in throttled_replicas(moves).items()
    }
    (await admin.incremental_alter_configs(topics)).raise_first()
    rates = [AlterConfig(LEADER_RATE, str(rate)), AlterConfig(FOLLOWER_RATE, str(rate))]
    brokers = {one for move in moves.values() for one in (*move.sources, *move.destinations)}
    (
        await admin.incremental_alter_configs(
            {ConfigResource.broker(broker): rates for broker in sorted(brokers)}
        )
    ).raise_first()


async def set_log_dir_throttle(cluster: Cluster, brokers: Iterable[int], rate: int) -> None:
    """Limit moves between the directories of brokers to `rate` bytes per second."""
    changes = {
        ConfigResource.broker(broker): [AlterConfig(LOG_DIR_RATE, str(rate))]
        for broker in sorted(set(brokers))
    }
    (await ConfigAdmin(cluster).incremental_alter_configs(changes)).raise_first()


async def clear_broker_throttles(cluster: Cluster, brokers: Collection[int]) -> None:
    """Remove all rates from brokers. Raises the first error."""
    await _clear(
        cluster,
        [ConfigResource.broker(broker) for broker in sorted(brokers)],
        (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE),
    )


async def clear_topic_throttles(cluster: Cluster, topics: Collection[str]) -> None:
    """Remove the lists of throttled replicas from topics. Raises the first error."""
    await _clear(
        cluster,
        [ConfigResource.topic(topic) for topic in sorted(topics)],
        (LEADER_REPLICAS, FOLLOWER_REPLICAS),
    )


async def _clear(
    cluster: Cluster, resources: Sequence[ConfigResource], names: Sequence[str]
) -> None:
    deletions = [AlterConfig(name, operation=AlterOperation.DELETE) for name in names]
    changes = dict.fromkeys(resources, deletions)
    (await ConfigAdmin(cluster).incremental_alter_configs(changes)).raise_first()


async def throttled_topics(cluster: Cluster, topics: Iterable[str]) -> list[str]:
    """Return the topics that list throttled replicas by number, as a reassignment does."""
    resources = [ConfigResource.topic(topic) for topic in topics]
    names = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
    described = await ConfigAdmin(cluster).describe_configs(resources, names=names)
    return [
        resource.name
        for resource, configs in described.raise_first().items()
        # An operator may have set `*`, which is not a trace of a reassignment.
        if any((each.value or ALL_REPLICAS) != ALL_REPLICAS for each in configs.values())
    ]
