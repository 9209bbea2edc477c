"""Report of ``plog topics --describe``, as Kafka's tabbed lines, tables, or JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plog.cli.output import Table, show
from plog.client.admin.brokers import BrokerAdmin
from plog.client.admin.configs import ConfigAdmin
from plog.client.admin.partitions import PartitionAdmin
from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.admin.values import (
    ConfigEntry,
    ConfigResource,
    PartitionDescription,
    Reassignment,
    TopicDescription,
)
from plog.client.network.cluster import Cluster
from plog.errors import ClusterAuthorizationFailed, UnsupportedVersion
from plog.types import TopicPartition, uuid_to_text

REPORTS = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
)
"""Options that select partitions by the state of their replicas."""
_MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition, with the values that the options in `REPORTS` depend on."""

    about: PartitionDescription
    reassignment: Reassignment | None
    min_isr: int
    live_brokers: frozenset[int]

    @property
    def replication_factor(self) -> int:
        """Return the number of replicas, excluding replicas that a reassignment is adding."""
        moving = self.reassignment
        if moving is None:
            return len(self.about.replicas)
        # The description and the reassignments are fetched by different requests. If the
        # description does not contain any replica that is being added or removed, it was fetched
        # before or after the reassignment.
        changing = {*moving.adding_replicas, *moving.removing_replicas}
        if not changing.intersection(self.about.replicas):
            return len(self.about.replicas)
        return len(moving.replicas) - len(moving.adding_replicas)

    def is_reported(self, options: Iterable[str]) -> bool:
        """Return whether any of `options`, a subset of `REPORTS`, selects the partition."""
        in_sync, leader = len(self.about.isr), self.about.leader
        found = {
            "--under-replicated-partitions": in_sync < self.replication_factor,
            # Metadata can still name a leader that has just failed.
            "--unavailable-partitions": leader is None or leader not in self.live_brokers,
            # As in Kafka, a partition without a leader is below its minimum, whatever its last ISR
            # was.
            "--under-min-isr-partitions": leader is None or in_sync < self.min_isr,
            "--at-min-isr-partitions": in_sync == self.min_isr,
        }
        return any(found[option] for option in options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its settings and partitions."""

    about: TopicDescription
    configs: Mapping[str, ConfigEntry]
    partitions: Sequence[Partition]

    @property
    def overrides(self) -> list[str]:
        """Return the overridden settings in Kafka's format."""
        return [
            f"{entry.name}={entry.value}" for entry in self.configs.values() if not entry.is_default
        ]


async def describe(cluster: Cluster, names: Sequence[str], arguments: argparse.Namespace) -> int:
    """Print the description of the topics `names`."""
    topics = await _read(cluster, names, arguments.partition_size_limit_per_response)
    # As in Kafka's tool, partition filters also omit the lines for topics.
    options = [name for name in REPORTS if getattr(arguments, name[2:].replace("-", "_"))]
    if arguments.topics_with_overrides:
        topics = [topic for topic in topics if topic.overrides]
    shown = [
        (
            topic,
            [each for each in topic.partitions if not options or each.is_reported(options)]
            if not arguments.topics_with_overrides
            else [],
        )
        for topic in topics
    ]
    show(
        lambda: (line for topic, some in shown for line in lines(topic, some, head=not options)),
        lambda: tables(shown, head=not options),
        lambda: [as_data(topic, some) for topic, some in shown if some or not options],
        as_json=arguments.json,
    )
    return 0


async def _read(cluster: Cluster, names: Sequence[str], page_partitions: int) -> list[Topic]:
    """Request descriptions, settings and reassignments of the topics. Raises the first error."""
    if not names:
        return []
    # With a limit for each response, a broker does not have to build one response for all
    # partitions.
    described = await TopicDescriptionAdmin(cluster).describe_topics(
        names, page_partitions=page_partitions
    )
    topics: list[TopicDescription] = list(described.raise_first().values())
    resources = [ConfigResource.topic(topic.name) for topic in topics]
    configs = (await ConfigAdmin(cluster).describe_configs(resources)).raise_first()
    # The leaders in the descriptions are compared with the brokers that are alive.
    brokers = (await BrokerAdmin(cluster).describe_cluster()).brokers
    moving = await _reassignments(cluster, topics)
    return [
        Topic(
            about=topic,
            configs=configs[resource],
            partitions=[
                Partition(
                    about=partition,
                    reassignment=moving.get(TopicPartition(topic.name, partition.partition)),
                    min_isr=_min_isr(configs[resource]),
                    live_brokers=frozenset(brokers),
                )
                for partition in topic.partitions
            ],
        )
        for topic, resource in zip(topics, resources, strict=True)
    ]


def _min_isr(configs: Mapping[str, ConfigEntry]) -> int:
    # Missing if the broker does not return all settings. 1 is the default.
    entry = configs.get(_MIN_ISR)
    return int(entry.value or 1) if entry else 1


async def _reassignments(
    cluster: Cluster, topics: Iterable[TopicDescription]
) -> dict[TopicPartition, Reassignment]:
    """Return ongoing reassignments, or none if the request is not supported or not authorized."""
    partitions = [
        TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions
    ]
    try:
        return await PartitionAdmin(cluster).list_partition_reassignments(partitions)
    except (UnsupportedVersion, ClusterAuthorizationFailed):
        # Not an error, as in Kafka's tool, because the description is useful without reassignments.
        return {}


# -- output ------------------------------------------------------------------------------------


def lines(topic: Topic, partitions: Sequence[Partition], *, head: bool) -> Iterator[str]:
    """Yield the lines that Kafka's tool prints for a topic."""
    about = topic.about
    if head:
        topic_id = f"\tTopicId: {uuid_to_text(about.topic_id)}" if about.topic_id else ""
        # As in Kafka's tool, the first partition stands for all.
        factor = topic.partitions[0].replication_factor if topic.partitions else 0
        yield (
            f"Topic: {about.name}{topic_id}\tPartitionCount: {len(about.partitions)}"
            f"\tReplicationFactor: {factor}\tConfigs: {','.join(topic.overrides)}"
        )
    for partition in partitions:
        yield _partition_line(about.name, partition)


def _partition_line(name: str, partition: Partition) -> str:
    about, moving = partition.about, partition.reassignment
    line = (
        f"\tTopic: {name}\tPartition: {about.partition}"
        f"\tLeader: {'none' if about.leader is None else about.leader}"
        f"\tReplicas: {_joined(about.replicas)}\tIsr: {_joined(about.isr)}"
    )
    if moving is not None:
        line += (
            f"\tAdding Replicas: {_joined(moving.adding_replicas)}"
            f"\tRemoving Replicas: {_joined(moving.removing_replicas)}"
        )
    return line + (
        f"\tElr: {_joined(about.eligible_leaders)}"
        f"\tLastKnownElr: {_joined(about.last_known_eligible_leaders)}"
    )


def _joined(brokers: Iterable[int] | None) -> str:
    # Brokers without KIP-966 do not report eligible leader replicas.
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def tables(shown: Sequence[tuple[Topic, Sequence[Partition]]], *, head: bool) -> Iterator[Table]:
    """Yield a table of topics and a table of their partitions."""
    if head:
        yield Table(
            ("TOPIC", "ID", "PARTITIONS", "REPLICATION", "SETTINGS"),
            [
                (
                    topic.about.name,
                    uuid_to_text(topic.about.topic_id) if topic.about.topic_id else None,
                    len(topic.about.partitions),
                    topic.about.replication_factor,
                    ", ".join(topic.overrides) or None,
                )
                for topic, _ in shown
            ],
        )
    rows = [
        (
            topic.about.name,
            each.about.partition,
            each.about.leader,
            _joined(each.about.replicas),
            _joined(each.about.isr),
        )
        for topic, some in shown
        for each in some
    ]
    # With --topics-with-overrides, only topics are printed.
    if rows or not head:
        yield Table(("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN SYNC"), rows)


def as_data(topic: Topic, partitions: Sequence[Partition]) -> dict[str, Any]:
    """Return a topic for ``--json``."""
    about = topic.about
    return {
        "topic": about.name,
        "topic_id": uuid_to_text(about.topic_id) if about.topic_id else None,
        "internal": about.is_internal,
        "partition_count": len(about.partitions),
        "replication_factor": about.replication_factor,
        "configs": {
            entry.name: entry.value for entry in topic.configs.values() if not entry.is_default
        },
        "partitions": [
            {
                "partition": each.about.partition,
                "leader": each.about.leader,
                "replicas": list(each.about.replicas),
                "isr": list(each.about.isr),
                "offline_replicas": list(each.about.offline_replicas),
                "adding_replicas": list(each.reassignment.adding_replicas)
                if each.reassignment
                else [],
                "removing_replicas": list(each.reassignment.removing_replicas)
                if each.reassignment
                else [],
            }
            for each in partitions
        ],
    }
