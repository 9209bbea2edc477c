"""Find the partitions whose replica on this broker is not in sync.

During a rolling restart, the next broker may be stopped when all replicas of the last one are in
sync. The leaders of the partitions decide which replicas are in sync, and the controller sends
their decisions to all brokers.

This module does not perform I/O. Called on the reactor thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from plog.types import TopicPartition
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import MetadataCache, PartitionState
from plogd.replica.follower.replica_fetcher_manager import ReplicaFetcherManager
from plogd.replica.partition import Partition


async def find_out_of_sync(
    cache: MetadataCache,
    hosted: Mapping[tuple[str, int], Partition],
    fetchers: ReplicaFetcherManager,
    *,
    broker_id: int,
    fair_queue: FairQueue,
) -> list[TopicPartition]:
    """Return the partitions that are assigned to broker `broker_id`, which is not in their ISR.

    `hosted` are the partitions of this broker, and `fetchers` copy those that it follows. A
    partition without its present role is not in sync, either: after a start, the metadata may
    still be from before. The same holds if its last fetch has failed: the leader may then have
    removed this replica from the ISR, without this broker knowing it.
    """
    found: list[TopicPartition] = []
    slices = Slices(fair_queue)
    for topic in cache.topics():
        async for state in slices.over(topic.partitions):
            key = TopicPartition(topic.name, state.partition)
            partition = hosted.get(key)
            if broker_id not in state.replicas or _is_new(partition, broker_id):
                continue
            if fetchers.has_failed(key) or not _is_in_sync(state, partition, broker_id):
                found.append(key)
    return found


def _is_new(partition: Partition | None, broker_id: int) -> bool:
    """Return whether a reassignment is adding this replica, which no other replica relies on."""
    return partition is not None and broker_id in partition.adding_replicas


def _is_in_sync(state: PartitionState, partition: Partition | None, broker_id: int) -> bool:
    return (
        broker_id in state.isr
        and partition is not None
        and not partition.log.offline
        and partition.leader_epoch >= state.leader_epoch
        and partition.leader >= 0
    )
