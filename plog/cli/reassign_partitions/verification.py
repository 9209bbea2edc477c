"""How far reassignments are, compared with the replicas that they were started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plog.client.admin.partitions import PartitionAdmin
from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.network.cluster import Cluster
from plog.errors import KafkaError, UnknownTopicOrPartition
from plog.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition's replicas, and whether no reassignment of it is in progress."""

    current: tuple[int, ...]
    target: tuple[int, ...]
    is_done: bool

    def line(self, partition: TopicPartition) -> str:
        """Return the line of Kafka's tool."""
        if not self.is_done:
            return f"Reassignment of partition {partition} is still in progress."
        if self.current == self.target:
            return f"Reassignment of partition {partition} is completed."
        current, target = (",".join(map(str, some)) for some in (self.current, self.target))
        return (
            f"There is no active reassignment of partition {partition}, but replica set is"
            f" {current} rather than {target}."
        )


async def find_partition_states(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int]]
) -> tuple[dict[TopicPartition, PartitionState], bool]:
    """Return the states, and whether any reassignment of the cluster is in progress."""
    ongoing = await PartitionAdmin(cluster).list_partition_reassignments()
    current = await current_replicas(cluster, {one.topic for one in targets if one not in ongoing})
    states = {
        partition: PartitionState(
            current=ongoing[partition].replicas
            if partition in ongoing
            # As in Kafka's tool, a missing partition has no replicas.
            else current.get(partition, ()),
            target=tuple(target),
            is_done=partition not in ongoing,
        )
        for partition, target in sorted(targets.items())
    }
    return states, bool(ongoing)


async def current_replicas(
    cluster: Cluster, topics: set[str]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of all partitions of `topics`, without topics that do not exist.

    Raises any other error of a topic.
    """
    described = await TopicDescriptionAdmin(cluster).describe_topics(sorted(topics))
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for description in described.values():
        if isinstance(description, UnknownTopicOrPartition):
            continue
        if isinstance(description, KafkaError):
            raise description
        for each in description.partitions:
            found[TopicPartition(description.name, each.partition)] = each.replicas
    return found
