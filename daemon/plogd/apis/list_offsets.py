"""ListOffsets (key 2): offsets by timestamp, or by a special timestamp (earliest, latest, …).

Serves versions 1-11.

  1 one offset        4 leader epoch           5 OFFSET_NOT_AVAILABLE (KIP-207)      6 flexible
  7 max timestamp (KIP-734)        8 earliest local        9 latest tiered        11 pending upload

"Latest" is the high watermark or, for read_committed, the last stable offset: consumers cannot read
beyond it. For a follower, it is the log end offset, and for the controller, which asks any replica
(replica id -2), the end of that replica's log, or an error if records are missing there.
replica/offset_lookup.py implements the special timestamps. The response waits for lookups that read
from disk. As in Kafka, a partition that is listed more than once gets INVALID_REQUEST; it appears
in the response once.
"""

from __future__ import annotations

from collections.abc import Sequence

from plog.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    UnsupportedVersion,
)
from plog.types import TopicPartition
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from plogd.apis.cluster_requests import check_is_broker
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices, by_topic, grouped
from plogd.broker import Broker
from plogd.fair_queue import SLICE, Slices
from plogd.ports import Later, MaybeLater, ready, spawn
from plogd.replica.offset_lookup import FoundOffset, look_up_offset
from plogd.replica.partition import READ_COMMITTED

# From -1: latest, earliest, max timestamp, earliest local, latest tiered, pending upload.
_FIRST_VERSION_BY_SPECIAL_TIMESTAMP = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
_FIRST_VERSION_WITH_EPOCH = 4  # KIP-320.
_FIRST_VERSION_WITH_NOT_AVAILABLE = 5  # KIP-207.
_DEBUGGING_REPLICA = -2
"""Kafka's DEBUGGING_REPLICA_ID: any replica answers with the end of its log."""

_Asked = Sequence[ListOffsetsPartition]
"""A request's elements for one partition: several if the partition is listed more than once."""


def handle_list_offsets(
    request: ListOffsetsRequest, context: RequestContext, broker: Broker
) -> Later[ListOffsetsResponse]:
    """Look up every partition; lookups that read from disk run concurrently."""
    return spawn(_look_up(request, context, broker))


async def _look_up(
    request: ListOffsetsRequest, context: RequestContext, broker: Broker
) -> ListOffsetsResponse:
    slices = Slices(broker.fair_queue)
    read_committed = request.isolation_level == READ_COMMITTED
    # A single broker ignores the replica id, which some clients set to 0.
    for_follower = request.replica_id >= 0 and broker.cluster_replicas is not None
    if for_follower:
        check_is_broker(context, broker, "ListOffsets by a replica")
    # As in Kafka, such a request asks for the state of this replica.
    any_replica = request.replica_id == _DEBUGGING_REPLICA and broker.cluster_replicas is not None
    asked = await by_topic(
        request.topics,
        lambda topic: topic.name,
        lambda topic: topic.partitions,
        lambda partition: partition.partition_index,
        slices,
    )

    def answer(named: tuple[str, _Asked]) -> Later[ListOffsetsPartitionResponse]:
        topic, partition = named
        if len(partition) > 1:
            repeated = InvalidRequest("the request lists this partition more than once")
            return ready(_error(partition[0], repeated, context))
        response = _answer(
            topic,
            partition[0],
            read_committed,
            for_follower,
            context,
            broker,
            any_replica=any_replica,
        )
        return response if isinstance(response, Later) else ready(response)

    answers = await ask_in_slices(
        ((topic, one) for topic, partitions in asked.items() for one in partitions.values()),
        answer,
        broker,
        # More at a time than elsewhere: lookups do not wait for a common sync, after which all of
        # them would continue in the same turn.
        SLICE,
    )

    def of_topic(
        answered: tuple[str, Sequence[ListOffsetsPartitionResponse | KafkaError]],
    ) -> ListOffsetsTopicResponse:
        name, partitions = answered
        # `_answer` turns each KafkaError into a response; the condition only narrows the type.
        return ListOffsetsTopicResponse(
            name=name, partitions=[one for one in partitions if not isinstance(one, KafkaError)]
        )

    topics = await grouped(asked, answers, slices)
    return ListOffsetsResponse(topics=lazy_array(topics, of_topic))


def _answer(
    topic: str,
    asked: ListOffsetsPartition,
    read_committed: bool,
    for_follower: bool,
    context: RequestContext,
    broker: Broker,
    *,
    any_replica: bool,
) -> MaybeLater[ListOffsetsPartitionResponse]:
    """Return the response for one partition, even if the lookup fails with a KafkaError."""
    try:
        _check_special_timestamp(asked.timestamp, context.version)
        if any_replica and broker.cluster_replicas is not None:
            key = TopicPartition(topic, asked.partition_index)
            broker.cluster_replicas.roles.lost.check_end_is_known(key)
        found = look_up_offset(
            broker.replica_manager.partition(topic, asked.partition_index),
            asked.timestamp,
            leader_epoch=asked.current_leader_epoch,
            read_committed=read_committed,
            for_follower=for_follower,
            any_replica=any_replica,
            queue=broker.time_lookups,
        )
    except KafkaError as error:
        return _error(asked, error, context)
    if isinstance(found, Later):
        return spawn(_answer_later(asked, found, context))
    return _found(asked, found, context)


async def _answer_later(
    asked: ListOffsetsPartition, found: Later[FoundOffset], context: RequestContext
) -> ListOffsetsPartitionResponse:
    try:
        return _found(asked, await found, context)
    except KafkaError as error:
        return _error(asked, error, context)


def _check_special_timestamp(timestamp: int, version: int) -> None:
    # Only negative timestamps have special meanings, which were added version by version.
    if timestamp >= 0:
        return
    first_version = _FIRST_VERSION_BY_SPECIAL_TIMESTAMP.get(timestamp)
    if first_version is None or version < first_version:
        raise UnsupportedVersion(
            f"ListOffsets version {version} does not support timestamp {timestamp}"
        )


def _found(
    asked: ListOffsetsPartition, found: FoundOffset, context: RequestContext
) -> ListOffsetsPartitionResponse:
    # The field is not ignorable: earlier versions cannot encode a value other than the default.
    with_epoch = context.version >= _FIRST_VERSION_WITH_EPOCH
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if with_epoch else -1,
    )


def _error(
    asked: ListOffsetsPartition, error: KafkaError, context: RequestContext
) -> ListOffsetsPartitionResponse:
    code = error.code
    if (
        # Clients that use these versions do not know this error, but they retry after its
        # replacement.
        code == ErrorCode.OFFSET_NOT_AVAILABLE
        and context.version < _FIRST_VERSION_WITH_NOT_AVAILABLE
    ):
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)


def refuse_list_offsets(
    request: ListOffsetsRequest, context: RequestContext, error: KafkaError
) -> ListOffsetsResponse:
    """Reject all partitions with `error`."""

    def of_topic(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
        partitions = lazy_array(topic.partitions, lambda one: _error(one, error, context))
        return ListOffsetsTopicResponse(name=topic.name, partitions=partitions)

    return ListOffsetsResponse(topics=lazy_array(request.topics, of_topic))
