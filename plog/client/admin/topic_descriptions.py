"""List and describe topics; topics.py changes them.

Any broker serves these requests. Brokers with KIP-966 describe topics in pages, so that a response
does not grow with the number of topics. For older brokers, and for topics identified by id, the
client sends a Metadata request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from plog.client.admin.base import AdminBase
from plog.client.admin.results import Results, outcome, raise_if_error, several
from plog.client.admin.values import (
    PartitionDescription,
    TopicDescription,
    TopicListing,
    operations_of,
    topic_id_of,
)
from plog.errors import InvalidRequest, KafkaError, UnsupportedVersion
from plog.types import Uuid, uuid_to_text
from plog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
)
from plog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)


class TopicDescriptionAdmin(AdminBase):
    """The operations that list and describe topics; a topic is identified by name or id."""

    async def list_topics(self, *, include_internal: bool = False) -> dict[str, TopicListing]:
        """Return the topics that this client may see, by name."""
        # Listing topics must not create a topic.
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = await self._cluster.ask_any(request, MetadataResponse)
        raise_if_error(response.error_code, None, "metadata")
        return {
            listing.name: listing
            for listing in listed_topics(response)
            if include_internal or not listing.is_internal
        }

    async def describe_topics(
        self,
        topics: Iterable[str | Uuid] | None = None,
        *,
        include_authorized_operations: bool = False,
        page_partitions: int = 2000,
    ) -> Results[str | Uuid, TopicDescription]:
        """Return topics with their partitions, by default all topics including internal topics.

        `page_partitions` limits the partitions per response if the broker supports pages. Errors,
        per topic: UnknownTopicOrPartition, UnknownTopicId, TopicAuthorizationFailed,
        InvalidTopicException.
        """
        if topics is None:
            every = await self._describe_by_name(
                None, page_partitions, include_authorized_operations
            )
            # Responses with and without pages list topics in different orders, so sort them.
            return Results({name: every[name] for name in sorted(every, key=str)})
        asked = several(topics)
        names = [topic for topic in asked if isinstance(topic, str)]
        ids = [topic for topic in asked if not isinstance(topic, str)]
        described: dict[str | Uuid, TopicDescription | KafkaError] = {}
        if names:
            described |= await self._describe_by_name(
                names, page_partitions, include_authorized_operations
            )
        # Kafka ignores names in a request that also contains ids, so send two requests.
        if ids:
            described |= await self._describe_unpaged(ids, include_authorized_operations)
        # An error such as UnknownTopicOrPartition would make a missing result look like a missing
        # topic.
        missing = InvalidRequest("the response has no result for this topic")
        return Results({topic: described.get(topic, missing) for topic in asked})

    async def describe_topic(
        self, topic: str | Uuid, *, include_authorized_operations: bool = False
    ) -> TopicDescription:
        """Return one topic with its partitions. Raises the error that `describe_topics` returns."""
        described = await self.describe_topics(
            [topic], include_authorized_operations=include_authorized_operations
        )
        return described.get(topic)

    async def _describe_by_name(
        self, names: Sequence[str] | None, page_partitions: int, include_operations: bool
    ) -> dict[str | Uuid, TopicDescription | KafkaError]:
        try:
            described = await self._describe_in_pages(names or (), page_partitions)
        except UnsupportedVersion:
            # Only brokers with KIP-966 support pages.
            return await self._describe_unpaged(names, include_operations)
        if include_operations:
            return described
        return {topic: _without_operations(x) for topic, x in described.items()}

    async def _describe_in_pages(
        self, names: Sequence[str], page_partitions: int
    ) -> dict[str | Uuid, TopicDescription | KafkaError]:
        """Describe topics in pages; without names, describe all topics."""
        pages = TopicPages()
        cursor: Cursor | None = None
        while True:
            request = DescribeTopicPartitionsRequest(
                # The broker continues after the cursor in sorted order, so the names must also be
                # sorted.
                topics=[DescribedTopic(name=name) for name in sorted(names)],
                response_partition_limit=page_partitions,
                cursor=cursor,
            )
            response = await self._cluster.ask_any(request, DescribeTopicPartitionsResponse)
            pages.add(response)
            # The second check prevents an endless loop if a broker repeats the cursor.
            if response.next_cursor is None or response.next_cursor == cursor:
                return pages.topics
            cursor = response.next_cursor

    async def _describe_unpaged(
        self, topics: Sequence[str | Uuid] | None, include_operations: bool
    ) -> dict[str | Uuid, TopicDescription | KafkaError]:
        request = MetadataRequest(
            topics=None if topics is None else [_requested(topic) for topic in topics],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=include_operations,
        )
        response = await self._cluster.ask_any(request, MetadataResponse)
        raise_if_error(response.error_code, None, "metadata")
        # A response contains both name and id. The caller expects the key that it passed.
        ids = {topic for topic in topics or () if not isinstance(topic, str)}
        described = zip(response.topics, described_topics(response), strict=True)
        return {
            (topic.topic_id if topic.topic_id in ids else topic.name or ""): description
            for topic, description in described
        }


def _requested(topic: str | Uuid) -> MetadataRequestTopic:
    if isinstance(topic, str):
        return MetadataRequestTopic(name=topic)
    return MetadataRequestTopic(topic_id=topic, name=None)


# -- responses --------------------------------------------------------------------------------


def listed_topics(response: MetadataResponse) -> list[TopicListing]:
    """Return the topics without an error in a Metadata response."""
    return [
        TopicListing(
            name=topic.name, topic_id=topic_id_of(topic.topic_id), is_internal=topic.is_internal
        )
        for topic in sorted(response.topics, key=lambda topic: topic.name or "")
        # Topics that the client may not describe have an error.
        if topic.name and not topic.error_code
    ]


def described_topics(response: MetadataResponse) -> list[TopicDescription | KafkaError]:
    """Return the topics in a Metadata response, in the response's order."""
    return [
        outcome(
            topic.error_code,
            None,
            f"topic {topic.name or uuid_to_text(topic.topic_id)}",
            TopicDescription(
                name=topic.name or "",
                topic_id=topic_id_of(topic.topic_id),
                is_internal=topic.is_internal,
                partitions=_described(topic.partitions),
                authorized_operations=operations_of(topic.topic_authorized_operations),
            ),
        )
        for topic in response.topics
    ]


class TopicPages:
    """Topics assembled from pages of partitions."""

    def __init__(self) -> None:
        self.topics: dict[str | Uuid, TopicDescription | KafkaError] = {}

    def add(self, page: DescribeTopicPartitionsResponse) -> None:
        """Add the next page."""
        for topic in page.topics:
            name = topic.name or ""
            before = self.topics.get(name)
            # Several pages may contain partitions of the same topic.
            known = before.partitions if isinstance(before, TopicDescription) else ()
            self.topics[name] = outcome(
                topic.error_code,
                None,
                f"topic {name}",
                TopicDescription(
                    name=name,
                    topic_id=topic_id_of(topic.topic_id),
                    is_internal=topic.is_internal,
                    partitions=known + _described(topic.partitions),
                    authorized_operations=operations_of(topic.topic_authorized_operations),
                ),
            )


def _described(
    partitions: Iterable[MetadataResponsePartition | DescribeTopicPartitionsResponsePartition],
) -> tuple[PartitionDescription, ...]:
    return tuple(
        PartitionDescription(
            partition=partition.partition_index,
            leader=None if partition.leader_id < 0 else partition.leader_id,
            leader_epoch=None if partition.leader_epoch < 0 else partition.leader_epoch,
            replicas=tuple(partition.replica_nodes),
            isr=tuple(partition.isr_nodes),
            offline_replicas=tuple(partition.offline_replicas),
            # Only DescribeTopicPartitions returns eligible leader replicas (KIP-966).
            eligible_leaders=_tuple_of(getattr(partition, "eligible_leader_replicas", None)),
            last_known_eligible_leaders=_tuple_of(getattr(partition, "last_known_elr", None)),
        )
        for partition in sorted(partitions, key=lambda partition: partition.partition_index)
    )


def _tuple_of(numbers: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if numbers is None else tuple(numbers)


def _without_operations(topic: TopicDescription | KafkaError) -> TopicDescription | KafkaError:
    """Return the topic without authorized operations, which pages always contain."""
    return topic if isinstance(topic, KafkaError) else replace(topic, authorized_operations=None)
