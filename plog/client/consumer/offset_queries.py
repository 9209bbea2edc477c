"""A consumer's queries about topics and offsets, which do not need an assignment or a group.

Each call ends after its `timeout_s`, which defaults to ``default.api.timeout.ms``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from plog.client.consumer.offset_lookup import OffsetLookup
from plog.client.consumer.timestamps import Time, time_ms
from plog.client.network.cluster import Cluster
from plog.client.network.metadata import PartitionMetadata, TopicMetadata
from plog.client.values import OffsetAndTimestamp, checked_partition, checked_partitions
from plog.types import TopicPartition


class OffsetQueries:
    """The query methods of `ConsumerCore`. Use only in the engine's thread."""

    def __init__(self, cluster: Cluster, lookup: OffsetLookup, api_timeout_s: float) -> None:
        self._cluster = cluster
        self._lookup = lookup
        self._api_timeout_s = api_timeout_s

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record.

        Raises UnknownTopicOrPartition, TopicAuthorizationFailed, and RequestTimedOut after
        `timeout_s` (default ``default.api.timeout.ms``).
        """
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        asked = checked_partitions(partitions)
        return await self._lookup.beginnings(asked, timeout_s=limit_s)

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return, for each partition, the offset after the last readable record.

        ``isolation.level`` determines which records are readable. Raises the same errors as
        `beginning_offsets`.
        """
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        asked = checked_partitions(partitions)
        return await self._lookup.ends(asked, timeout_s=limit_s)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, Time], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each partition's time, or None if there is no record.

        A time is in ms since 1970, or a datetime with a time zone. Raises the same errors as
        `beginning_offsets`.
        """
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        asked = {checked_partition(one): time_ms(time) for one, time in times.items()}
        return await self._lookup.at_times(asked, timeout_s=limit_s)

    async def partitions_for(
        self, topic: str, timeout_s: float | None = None
    ) -> tuple[PartitionMetadata, ...]:
        """Return a topic's partitions in order, with their leaders.

        Raises the same errors as `beginning_offsets`.
        """
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        deadline = self._cluster.deadline(limit_s)
        return (await self._cluster.topic(topic, deadline=deadline)).partitions

    async def topics(self) -> dict[str, TopicMetadata]:
        """Return all topics that this client is allowed to see. Raises RequestTimedOut."""
        metadata = await self._cluster.refresh(all_topics=True)
        return {name: topic for name, topic in metadata.topics.items() if not topic.error}
