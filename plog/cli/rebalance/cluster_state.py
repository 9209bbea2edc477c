"""The brokers, replicas, leaders and sizes that plans are made from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from plog.cli.reassign_partitions.available_brokers import available_racks
from plog.client.admin.log_dirs import LogDirAdmin
from plog.client.admin.partitions import PartitionAdmin
from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.admin.values import PartitionDescription, Reassignment
from plog.client.network.cluster import Cluster
from plog.errors import KafkaError, UnknownTopicOrPartition
from plog.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """A cluster at one time. Reassignments in progress count as if they were done."""

    racks: Mapping[int, str | None]
    """The available brokers, with their racks."""
    partitions: Mapping[TopicPartition, PartitionDescription]
    ongoing: Mapping[TopicPartition, Reassignment]
    sizes: Mapping[TopicPartition, int]
    """The size of the largest replica of each partition, in bytes."""

    @property
    def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The replicas of each partition, after the reassignments in progress."""
        result = {partition: each.replicas for partition, each in self.partitions.items()}
        for partition, moving in self.ongoing.items():
            if partition in result:
                result[partition] = tuple(
                    broker for broker in moving.replicas if broker not in moving.removing_replicas
                )
        return result

    def may_lead(self, partition: TopicPartition, broker: int) -> bool:
        """Return whether a broker can lead a partition: in sync, or about to become a replica."""
        known = self.partitions[partition]
        return broker in self.racks and (broker in known.isr or broker not in known.replicas)


async def read_cluster_state(cluster: Cluster, *, disable_rack_aware: bool) -> ClusterState:
    """Return the state of the cluster. Raises UsageError, and errors of the requests."""
    racks = await available_racks(cluster, disable_rack_aware=disable_rack_aware)
    return ClusterState(
        racks=racks,
        partitions=await describe_partitions(cluster),
        ongoing=await PartitionAdmin(cluster).list_partition_reassignments(),
        sizes=await _sizes(cluster, racks),
    )


async def describe_partitions(
    cluster: Cluster, topics: Collection[str] | None = None
) -> dict[TopicPartition, PartitionDescription]:
    """Return the partitions of topics, by default of all topics.

    A topic that has just been deleted is left out. Raises any other error.
    """
    described = await TopicDescriptionAdmin(cluster).describe_topics(topics)
    found: dict[TopicPartition, PartitionDescription] = {}
    for topic in described.values():
        if isinstance(topic, UnknownTopicOrPartition):
            continue
        if isinstance(topic, KafkaError):
            raise topic
        found |= {TopicPartition(topic.name, each.partition): each for each in topic.partitions}
    return found


async def _sizes(cluster: Cluster, brokers: Collection[int]) -> dict[TopicPartition, int]:
    described = await LogDirAdmin(cluster).describe_log_dirs(sorted(brokers))
    sizes: dict[TopicPartition, int] = {}
    for log_dirs in described.raise_first().values():
        for log_dir in log_dirs.values():
            for partition, replica in log_dir.replicas.items():
                sizes[partition] = max(sizes.get(partition, 0), replica.size_bytes)
    return sizes
