"""Operations on partition contents: list offsets by time, delete records, describe producers.

Each partition's leader serves these requests. Source: Kafka 4.3 ListOffsetsHandler,
DeleteRecordsHandler, DescribeProducersHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from plog.client.admin.base import AdminBase
from plog.client.admin.results import Results, outcome
from plog.client.admin.routing import Answers, ask_nodes, by_leader, settle
from plog.client.admin.values import ListedOffset, OffsetSpec, ProducerState
from plog.errors import InvalidRequest, KafkaError, UnsupportedVersion
from plog.types import TopicPartition
from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from plog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

HIGH_WATERMARK: Final = -1
"""A special offset for `delete_records`: delete all records up to the high watermark."""

# The values of ListOffsets' isolation_level field (KIP-98).
_ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
# The replica id in ListOffsets is a follower's broker id, or -1 for a client.
_NOT_A_REPLICA = -1
# The version of ListOffsets that added each special value. An older broker would treat the value as
# a timestamp.
_FIRST_VERSION: Mapping[int, int] = {
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,
}


class RecordAdmin(AdminBase):
    """The operations on partition contents."""

    async def list_offsets(
        self,
        times: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: str = "read_uncommitted",
    ) -> Results[TopicPartition, ListedOffset]:
        """Return each partition's first offset at or after a timestamp, or for an `OffsetSpec`.

        With "read_committed", the latest offset is the start of the earliest open transaction, if
        there is one. Errors: UnknownTopicOrPartition, LeaderNotAvailable, UnsupportedVersion for an
        `OffsetSpec` that an old broker does not support, ...
        """
        level = _isolation_level(isolation_level)

        async def ask(
            node_id: int, partitions: Sequence[TopicPartition]
        ) -> Answers[TopicPartition, ListedOffset]:
            version = (await self._cluster.connection(node_id)).version_of(ListOffsetsRequest)
            # The leaders may run different Kafka versions, so check each leader's version.
            known, unknown = split_by_version({p: times[p] for p in partitions}, version)
            if not known:
                return unknown
            request = list_offsets_request(
                known, isolation_level=level, timeout_ms=self._request_timeout_ms
            )
            answer = await self._cluster.ask_node(node_id, request, ListOffsetsResponse)
            return {**unknown, **listed_offsets(answer)}

        return await by_leader(self._cluster, times, ask)

    async def delete_records(
        self, before_offsets: Mapping[TopicPartition, int]
    ) -> Results[TopicPartition, int]:
        """Delete all records below each partition's offset; return the new log start offsets.

        `HIGH_WATERMARK` deletes all records. Errors: OffsetOutOfRange for an offset above the high
        watermark, PolicyViolation for a topic that is only compacted, UnknownTopicOrPartition, ...
        """

        async def ask(
            node_id: int, partitions: Sequence[TopicPartition]
        ) -> Answers[TopicPartition, int]:
            request = delete_records_request(
                {partition: before_offsets[partition] for partition in partitions},
                timeout_ms=self._request_timeout_ms,
            )
            return deleted_records(
                await self._cluster.ask_node(node_id, request, DeleteRecordsResponse)
            )

        return await by_leader(self._cluster, before_offsets, ask)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """Return each partition's idempotent producers, as known to its leader or to `broker`."""

        async def ask(
            node_id: int, partitions: Sequence[TopicPartition]
        ) -> Answers[TopicPartition, tuple[ProducerState, ...]]:
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=topic, partition_indexes=numbers)
                    for topic, numbers in by_topic(partitions).items()
                ]
            )
            return described_producers(
                await self._cluster.ask_node(node_id, request, DescribeProducersResponse)
            )

        # Any replica can serve the request, not only the leader (KIP-664).
        if broker is None:
            return await by_leader(self._cluster, partitions, ask)
        return await settle(
            self._cluster,
            partitions,
            lambda waiting: ask_nodes(self._cluster, {broker: waiting}, ask),
        )


def _isolation_level(name: str) -> int:
    if name not in _ISOLATION_LEVELS:
        raise InvalidRequest(
            f"invalid isolation_level {name!r}; use {' or '.join(_ISOLATION_LEVELS)}"
        )
    return _ISOLATION_LEVELS[name]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers by topic.

    >>> by_topic([TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 0)])
    {'a': [1, 0], 'b': [0]}
    """
    grouped: dict[str, list[int]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic, []).append(partition.partition)
    return grouped


# -- requests ---------------------------------------------------------------------------------


def split_by_version(
    times: Mapping[TopicPartition, int], version: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ListedOffset | KafkaError]]:
    """Return the values that this version of ListOffsets supports, and errors for the others."""
    known: dict[TopicPartition, int] = {}
    unknown: dict[TopicPartition, ListedOffset | KafkaError] = {}
    for partition, time in times.items():
        first = _FIRST_VERSION.get(time, 0)
        if version >= first:
            known[partition] = int(time)
        else:
            unknown[partition] = UnsupportedVersion(
                f"the leader of {partition} does not support {OffsetSpec(time).name}: "
                f"it requires ListOffsets version {first}, but the broker supports {version}"
            )
    return known, unknown


def list_offsets_request(
    times: Mapping[TopicPartition, int], *, isolation_level: int, timeout_ms: int
) -> ListOffsetsRequest:
    """Return the request to look up offsets in one leader's partitions."""
    return ListOffsetsRequest(
        replica_id=_NOT_A_REPLICA,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=number, timestamp=times[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(times).items()
        ],
        timeout_ms=timeout_ms,
    )


def delete_records_request(
    before_offsets: Mapping[TopicPartition, int], *, timeout_ms: int
) -> DeleteRecordsRequest:
    """Return the request to delete records from one leader's partitions."""
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(
                        partition_index=number,
                        offset=before_offsets[TopicPartition(topic, number)],
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(before_offsets).items()
        ],
        timeout_ms=timeout_ms,
    )


# -- responses --------------------------------------------------------------------------------


def listed_offsets(
    response: ListOffsetsResponse,
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    """Return the offsets for one leader's partitions."""
    listed: dict[TopicPartition, ListedOffset | KafkaError] = {}
    for topic in response.topics:
        for found in topic.partitions:
            partition = TopicPartition(topic.name, found.partition_index)
            offset = ListedOffset(
                offset=found.offset,
                timestamp=found.timestamp,
                # Brokers before KIP-320 do not return an epoch.
                leader_epoch=None if found.leader_epoch < 0 else found.leader_epoch,
            )
            listed[partition] = outcome(found.error_code, None, str(partition), offset)
    return listed


def deleted_records(response: DeleteRecordsResponse) -> dict[TopicPartition, int | KafkaError]:
    """Return the new log start offsets for one leader's partitions."""
    deleted: dict[TopicPartition, int | KafkaError] = {}
    for topic in response.topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            deleted[partition] = outcome(
                result.error_code, None, str(partition), result.low_watermark
            )
    return deleted


def described_producers(
    response: DescribeProducersResponse,
) -> dict[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
    """Return the producers for one leader's partitions."""
    described: dict[TopicPartition, tuple[ProducerState, ...] | KafkaError] = {}
    for topic in response.topics:
        for found in topic.partitions:
            partition = TopicPartition(topic.name, found.partition_index)
            producers = tuple(
                ProducerState(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=_known(producer.coordinator_epoch),
                    # -1 means that no transaction is open.
                    transaction_start_offset=_known(producer.current_txn_start_offset),
                )
                for producer in found.active_producers
            )
            described[partition] = outcome(
                found.error_code, found.error_message, str(partition), producers
            )
    return described


def _known(number: int) -> int | None:
    return None if number < 0 else number
