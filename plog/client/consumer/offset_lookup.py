"""Look up offsets at partition leaders: by timestamp, or at the start or end of a log.

The module converts plain values into ListOffsets requests, and responses into plain values.
`OffsetLookup` sends requests to all leaders, and retries after a change of leader, until every
partition has a result or the timeout expires. With isolation.level=read_committed, the end is the
last stable offset. Source: KIP-79, KIP-207, KIP-320; Kafka 3.9 OffsetFetcher.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from plog.client.consumer.reset_target import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from plog.client.errors import error_about
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.client.network.ports import Network
from plog.client.values import OffsetAndTimestamp
from plog.errors import (
    ErrorCode,
    KafkaError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_from_code,
)
from plog.types import TopicPartition
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CONSUMER = -1
"""The replica ID in requests from clients, which are not replicas."""
UNKNOWN_OFFSET = -1
MAY_PASS = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.BROKER_NOT_AVAILABLE)
"""Errors that are not retriable in Kafka, but after which a retry may succeed."""
_FIRST_VERSION_OF = {-3: 7, -4: 8, -5: 9, -6: 11}
"""The first version that supports each special timestamp; older brokers treat it as a time."""


class TimestampQuery(NamedTuple):
    """A timestamp to look up in a partition. A leader epoch of -1 means that it is unknown."""

    partition: TopicPartition
    timestamp: int
    leader_epoch: int = -1


class TimestampResults(NamedTuple):
    """The results of lookups. None means that all records are older than the timestamp."""

    found: dict[TopicPartition, OffsetAndTimestamp | None]
    failed: dict[TopicPartition, KafkaError]


def list_offsets_request(
    queries: Iterable[TimestampQuery], *, isolation_level: int, timeout_ms: int
) -> ListOffsetsRequest:
    """Return a request for queries to the same leader."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for query in queries:
        topics.setdefault(query.partition.topic, []).append(
            ListOffsetsPartition(
                partition_index=query.partition.partition,
                current_leader_epoch=query.leader_epoch,
                timestamp=query.timestamp,
            )
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
        timeout_ms=timeout_ms,
    )


def read_list_offsets(
    queries: Iterable[TimestampQuery], response: ListOffsetsResponse
) -> TimestampResults:
    """Return the results for `queries` in `response`."""
    results = {
        TopicPartition(topic.name, one.partition_index): one
        for topic in response.topics
        for one in topic.partitions
    }
    answers = TimestampResults({}, {})
    for query in queries:
        partition = query.partition
        one = results.get(partition)
        # Treat a partition that the response omits as failed, so that it is requested again.
        if one is None:
            answers.failed[partition] = error_from_code(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the leader of {partition} did not return an offset",
            )
        elif one.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            # Records in the oldest format have no timestamps.
            answers.found[partition] = None
        elif one.error_code:
            text = f"cannot look up offsets for {partition}"
            answers.failed[partition] = error_about(one.error_code, text)
        elif one.offset == UNKNOWN_OFFSET:
            answers.found[partition] = None
        else:
            # Brokers before KIP-320 do not return an epoch.
            epoch = one.leader_epoch if one.leader_epoch >= 0 else None
            answers.found[partition] = OffsetAndTimestamp(one.offset, one.timestamp, epoch)
    return answers


class OffsetLookup:
    """The component that looks up offsets in any partitions. Use only in the engine's thread."""

    def __init__(self, cluster: Cluster, network: Network, *, isolation_level: int) -> None:
        self._cluster = cluster
        self._network = network
        self._isolation_level = isolation_level

    async def beginnings(
        self,
        partitions: Collection[TopicPartition],
        *,
        timeout_s: float,
        retry_unknown: bool = True,
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition. Raises the same errors as `at_times`."""
        asked = dict.fromkeys(partitions, EARLIEST_TIMESTAMP)
        return await self._offsets(asked, timeout_s, retry_unknown)

    async def ends(
        self,
        partitions: Collection[TopicPartition],
        *,
        timeout_s: float,
        retry_unknown: bool = True,
    ) -> dict[TopicPartition, int]:
        """Return the end of each partition, which depends on isolation.level.

        Raises the same errors as `at_times`.
        """
        asked = dict.fromkeys(partitions, LATEST_TIMESTAMP)
        return await self._offsets(asked, timeout_s, retry_unknown)

    async def _offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_s: float, retry_unknown: bool
    ) -> dict[TopicPartition, int]:
        found = await self.at_times(timestamps, timeout_s=timeout_s, retry_unknown=retry_unknown)
        return {partition: one.offset for partition, one in found.items() if one is not None}

    async def at_times(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        timeout_s: float,
        retry_unknown: bool = True,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each given timestamp, or None.

        Raises permanent errors, such as TopicAuthorizationFailed, immediately. After `timeout_s`,
        raises the error that prevented a lookup, such as UnknownTopicOrPartition,
        LeaderNotAvailable or ConnectionFailed. Without `retry_unknown`, raises
        UnknownTopicOrPartition when new metadata has not helped.
        """
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        left = dict(timestamps)
        backoff = self._cluster.backoff(self._cluster.deadline(timeout_s))
        has_refreshed = False
        while True:
            answers = await self._ask_leaders(left, backoff.deadline)
            found |= answers.found
            for partition in answers.found:
                del left[partition]
            if not left:
                # Return the results in the order of the caller's mapping.
                return {partition: found[partition] for partition in timestamps}
            # A permanent error fails the call; retrying the other partitions would only delay it.
            for error in answers.failed.values():
                if not (error.retriable or error.code in MAY_PASS):
                    raise error
                is_unknown = isinstance(error, UnknownTopicOrPartition)
                if is_unknown and has_refreshed and not retry_unknown:
                    raise error
            error = next(iter(answers.failed.values()))
            await backoff.wait_or_raise(error)
            await self._refresh(left, backoff.deadline)
            has_refreshed = True
            # The refresh may have used up the remaining time. Another attempt would then replace
            # the error with a timeout.
            if backoff.is_over:
                await backoff.wait_or_raise(error)

    async def _refresh(self, partitions: Iterable[TopicPartition], deadline: Deadline) -> None:
        topics = {partition.topic for partition in partitions}
        try:
            await self._cluster.refresh(topics, deadline=deadline)
        except KafkaError as error:
            if not error.retriable:
                raise
            # Continue with the known metadata: errors from the next attempt are more informative.

    async def _ask_leaders(
        self, timestamps: Mapping[TopicPartition, int], deadline: Deadline
    ) -> TimestampResults:
        """Send one request to each leader, concurrently."""
        if any(p.topic not in self._cluster.metadata.topics for p in timestamps):
            await self._refresh(timestamps, deadline)
        metadata = self._cluster.metadata
        answers = TimestampResults({}, {})
        by_leader: dict[int, list[TimestampQuery]] = {}
        for partition, timestamp in timestamps.items():
            known = metadata.partition(partition)
            leader = metadata.leader_of(partition)
            if known is None or leader is None:
                answers.failed[partition] = self.why_no_leader(partition)
                continue
            # KIP-320: with the epoch, a leader can reject a request that is based on old metadata.
            query = TimestampQuery(partition, timestamp, known.leader_epoch)
            by_leader.setdefault(leader, []).append(query)
        timeout_s = max(0.001, deadline.left_s)
        asked = [
            self.ask(node, about, timeout_s, deadline=deadline) for node, about in by_leader.items()
        ]
        for one in await self._network.gather(asked):
            answers.found.update(one.found)
            answers.failed.update(one.failed)
        return answers

    def why_no_leader(self, partition: TopicPartition) -> KafkaError:
        """Return the error for a partition without a known leader."""
        topic = self._cluster.metadata.topics.get(partition.topic)
        if topic is not None and topic.error:
            return error_about(topic.error, f"topic {partition.topic}")
        # If no broker has returned metadata, the topic may exist, so return the reason instead.
        if topic is None and self._cluster.trouble is not None:
            return self._cluster.trouble
        if topic is None or partition.partition >= len(topic.partitions):
            return UnknownTopicOrPartition(f"{partition} does not exist")
        return error_from_code(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")

    async def ask(
        self,
        node_id: int,
        queries: Sequence[TimestampQuery],
        timeout_s: float,
        *,
        deadline: Deadline | None = None,
    ) -> TimestampResults:
        """Send the queries to one broker; if it does not respond in time, all of them fail."""
        request = list_offsets_request(
            queries,
            isolation_level=self._isolation_level,
            # The protocol's field is a 32-bit integer.
            timeout_ms=min(int(timeout_s * 1000), 0x7FFFFFFF),
        )
        try:
            connection = await self._cluster.connection(node_id, deadline=deadline)
            version = connection.version_of(ListOffsetsRequest)
            for query in queries:
                if version < _FIRST_VERSION_OF.get(query.timestamp, 0):
                    raise UnsupportedVersion(
                        f"cannot look up the timestamp {query.timestamp}: the broker at"
                        f" {connection.address} is too old"
                    )
            response = await self._cluster.ask_node(
                node_id, request, ListOffsetsResponse, deadline=deadline
            )
        except KafkaError as error:
            # A connection error applies to all queries.
            return TimestampResults({}, {query.partition: error for query in queries})
        return read_list_offsets(queries, response)
