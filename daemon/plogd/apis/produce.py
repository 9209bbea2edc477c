"""Produce (key 0): append record batches to partitions that this broker leads.

Serves versions 3-13. Versions 0-2 are only advertised, because older librdkafka versions disable
compression if they are missing (confluentinc/librdkafka#4956, KAFKA-18659). As in Kafka 4, a
request in version 0, 1 or 2 closes the connection.

  3 record batch v2      7 zstd (KIP-110)     8 error message per partition (KIP-467)
  9 flexible            10 current leader (KIP-951)       13 topic ids (KIP-516)

A request with acks=0 does not get a response. This module maps a request to
`ReplicaManager.append_records`, and the outcome to a response. log/batch_validator.py validates the
batches, and replica/partition.py decides whether the append is allowed. If a client exceeds its
quota, its records are still appended, and the response contains a throttle time (KIP-219).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from plog.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from plog.records.batch import ATTRIBUTES_POSITION, COMPRESSION_MASK, Compression
from plog.types import TopicPartition
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from plog.wire.single_produce import SingleProduce
from plogd.apis.close_connection import CloseConnection
from plogd.apis.current_leaders import OF_INTEREST, CurrentLeaders
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_produce import is_large, produce_in_slices
from plogd.apis.throttling import count_produce
from plogd.broker import Broker
from plogd.metadata.cache import INTERNAL_TOPICS
from plogd.ports import Later, MaybeLater
from plogd.replica.delayed_produce import PartitionAppend

_FIRST_TOPIC_ID_VERSION = 13  # KIP-516.
_FIRST_VERSION_WITH_LEADER = 10  # KIP-951.
_FIRST_ZSTD_VERSION = 7  # KIP-110.
# The attributes are a big-endian int16, and its low byte contains the codec.
_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1
_VALID_ACKS = (-1, 0, 1)  # KIP-1 removed all other values.
_ADMIN_CLIENT_ID = "__admin_client"
"""Kafka's AdminUtils.ADMIN_CLIENT_ID. Only clients with this id may write to internal topics."""
# Kafka's ReplicaManager catches these errors separately, and returns no log start offset.
_FOUND_BEFORE_THE_LOG = (
    CorruptMessage,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
)
"""Errors for which Kafka's response does not contain a log start offset."""
_NO_LEADER = LeaderIdAndEpoch()
"""Shared by all responses, because it never changes."""


def handle_produce(
    request: ProduceRequest | SingleProduce, context: RequestContext, broker: Broker
) -> ProduceResponse | bytes | Later[Any] | None:
    """Append the records; respond once they satisfy the request's acks, or never for acks=0."""
    if isinstance(request, SingleProduce):
        # Most requests take this path; those to which a special rule applies continue below.
        # From version 13 on, a request contains the topic's id instead of its name.
        topic = request.topic or broker.cache.topic_name(request.topic_id)
        if (
            topic
            and topic not in INTERNAL_TOPICS
            and request.acks in (1, -1)
            and not broker.quotas.produce.is_set
        ):
            return _append_single(request, topic, context, broker)
        request = request.as_message()
    if request.acks not in _VALID_ACKS:
        raise InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {request.acks}")
    # Counted here, once for the whole request, even if it is handled in slices.
    throttle_ms = count_produce(context, broker) if broker.quotas.produce.is_set else 0
    if not is_large(request, context):
        return _append(_Produce(request, context, broker, throttle_ms))
    return produce_in_slices(
        request,
        context,
        broker,
        lambda part, refusal: _append(_Produce(part, context, broker, throttle_ms, refusal)),
    )


def _append_single(
    single: SingleProduce, topic: str, context: RequestContext, broker: Broker
) -> ProduceResponse | bytes | Later[Any]:
    """Append the batch of a request with a single partition, to which no special rule applies."""
    records = single.records
    nbytes = len(records)  # Read here, because a released view has no length.
    appended = broker.replica_manager.append_one(
        topic, single.partition, records, single.acks, single.timeout_ms
    )
    records.release()  # From now on, the transport may reuse their memory.
    if isinstance(appended, Later):
        return appended.map(
            lambda appends: _single_response(single, topic, context, broker, appends[0], nbytes)
        )
    return _single_response(single, topic, context, broker, appended[0], nbytes)


def _single_response(
    single: SingleProduce,
    topic: str,
    context: RequestContext,
    broker: Broker,
    append: PartitionAppend,
    nbytes: int,
) -> ProduceResponse | bytes:
    broker.topic_stats.appended(append, nbytes)
    info = append.info
    if info is not None and append.error is None:
        return single.frame_response(
            info.first_offset, info.log_append_time_ms, append.log_start_offset
        )
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic,
                topic_id=single.topic_id,
                partition_responses=[partition_response(single.partition, append)],
            )
        ]
    )
    _name_leaders(response, [append], context, broker)
    return response


def _name_leaders(
    response: ProduceResponse,
    appends: Sequence[PartitionAppend],
    context: RequestContext,
    broker: Broker,
) -> None:
    """Add the current leaders of the partitions that this broker does not lead (KIP-951)."""
    if context.version < _FIRST_VERSION_WITH_LEADER:
        return
    if not any(one.error is not None and one.error.code in OF_INTEREST for one in appends):
        return
    leaders = CurrentLeaders(context, broker)
    for topic in response.responses:
        # From version 13 on, a request contains ids only.
        name = topic.name or broker.cache.topic_name(topic.topic_id) or ""
        for one in topic.partition_responses:
            if one.error_code in OF_INTEREST:
                leader, epoch = leaders.after(one.error_code, name, one.index)
                one.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    response.node_endpoints = [
        NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in leaders.nodes
    ]


def _append(produce: _Produce) -> MaybeLater[ProduceResponse | None]:
    appended = produce.append()
    produce.release_records()
    if isinstance(appended, Later):
        return appended.map(produce.answer)
    return produce.answer(appended)


class _Produce:
    """A Produce request in progress: its appends, its rejected partitions, and their order."""

    __slots__ = (
        "_broker",
        "_context",
        "_entries",
        "_outcomes",
        "_request",
        "_sizes",
        "_throttle_ms",
    )

    def __init__(
        self,
        request: ProduceRequest,
        context: RequestContext,
        broker: Broker,
        throttle_ms: int,
        refusal_of_all: KafkaError | None = None,
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._throttle_ms = throttle_ms
        self._entries: list[tuple[TopicPartition, memoryview]] = []
        self._sizes: list[int] = []
        self._outcomes: list[KafkaError | None] = []
        """For each partition in the request, in order: why it is rejected, or None if it is
        appended."""
        version = context.version
        for topic in request.topic_data:
            name: str | None = topic.name
            if version >= _FIRST_TOPIC_ID_VERSION:
                name = broker.cache.topic_name(topic.topic_id)
            refusal = refusal_of_all or _refusal_of_topic(name, context)
            for data in topic.partition_data:
                self._add(name or "", data, refusal or _refusal_of_records(data.records, version))

    def _add(self, topic: str, data: PartitionProduceData, refusal: KafkaError | None) -> None:
        self._outcomes.append(refusal)
        if refusal is None:
            records = data.records
            assert isinstance(records, memoryview)
            self._entries.append((TopicPartition(topic, data.index), records))
            # Stored, because the records are released before the append is counted.
            self._sizes.append(records.nbytes)

    def append(self) -> MaybeLater[list[PartitionAppend]]:
        """Append the records of the partitions that are not rejected."""
        return self._broker.replica_manager.append_records(
            self._entries,
            required_acks=self._request.acks,
            timeout_ms=self._request.timeout_ms,
        )

    def release_records(self) -> None:
        """Drop all references to the records, so that the transport can reuse their memory."""
        self._entries.clear()
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                data.records = None

    def answer(self, appends: Sequence[PartitionAppend]) -> ProduceResponse | None:
        """Return the response to the request, or None for acks=0.

        Raises CloseConnection if an append failed with acks=0.
        """
        stats = self._broker.topic_stats
        for append, size in zip(appends, self._sizes, strict=True):
            stats.appended(append, size)
        if self._request.acks == 0:
            self._close_on_error(appends)
            return None
        results = self._results(appends)
        response = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        partition_response(data.index, next(results))
                        for data in topic.partition_data
                    ],
                )
                for topic in self._request.topic_data
            ],
            throttle_time_ms=self._throttle_ms,
        )
        _name_leaders(response, appends, self._context, self._broker)
        return response

    def _results(
        self, appends: Sequence[PartitionAppend]
    ) -> Iterator[PartitionAppend | KafkaError]:
        """Yield the outcome for each partition in the request, in order."""
        appended = iter(appends)
        for refusal in self._outcomes:
            yield next(appended) if refusal is None else refusal

    def _close_on_error(self, appends: Sequence[PartitionAppend]) -> None:
        for result in self._results(appends):
            error = result.error if isinstance(result, PartitionAppend) else result
            # Closing the connection is the only way to report an error to a client with acks=0.
            if error is not None:
                raise CloseConnection(f"a produce request with acks=0 failed: {error.message}")


def _refusal_of_topic(name: str | None, context: RequestContext) -> KafkaError | None:
    if name is None:
        return UnknownTopicId()
    # Otherwise, any client could forge committed offsets and groups.
    if name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT_ID:
        return InvalidTopicException(f"clients cannot write to the internal topic {name}")
    return None


def _refusal_of_records(records: object, version: int) -> KafkaError | None:
    """Return an error for missing records, or for a codec that the version does not support."""
    if not isinstance(records, memoryview) or not records.nbytes:
        # As in Kafka's ProduceRequest.validateRecords, the error affects only this partition.
        return InvalidRecord("the request contains no records for the partition")
    if (
        version < _FIRST_ZSTD_VERSION
        and len(records) > _ATTRIBUTES_LOW_BYTE
        # Checking the first batch suffices: log/batch_validator.py rejects a second one.
        and records[_ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK == Compression.ZSTD
    ):
        return UnsupportedCompressionType(
            f"zstd compression requires Produce version {_FIRST_ZSTD_VERSION} or later"
        )
    return None


def partition_response(
    index: int, result: PartitionAppend | KafkaError
) -> PartitionProduceResponse:
    """Return the response for one partition."""
    # A rejected partition was not looked up, so its log start offset is unknown.
    if isinstance(result, KafkaError):
        return _error_response(index, result, log_start_offset=-1)
    if isinstance(result.error, _FOUND_BEFORE_THE_LOG):
        return _error_response(index, result.error, log_start_offset=-1)
    if result.error is not None:
        return _error_response(index, result.error, log_start_offset=result.log_start_offset)
    info = result.info
    assert info is not None
    return PartitionProduceResponse(
        index=index,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        current_leader=_NO_LEADER,
    )


def _error_response(
    index: int, error: KafkaError, *, log_start_offset: int
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=log_start_offset,
        error_message=error.message,
        current_leader=_NO_LEADER,
    )


def refuse_produce(
    request: ProduceRequest | SingleProduce, context: RequestContext, error: KafkaError
) -> ProduceResponse:
    """Reject all partitions with `error`. Raises CloseConnection for acks=0."""
    if isinstance(request, SingleProduce):
        request = request.as_message()
    # No response may be sent: the client would take it for the response to its next request.
    if request.acks == 0:
        raise CloseConnection(f"a produce request with acks=0 failed: {error.message}")

    def refused(data: PartitionProduceData) -> PartitionProduceResponse:
        return _error_response(data.index, error, log_start_offset=-1)

    def refused_topic(topic: TopicProduceData) -> TopicProduceResponse:
        return TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=lazy_array(topic.partition_data, refused),
        )

    return ProduceResponse(responses=lazy_array(request.topic_data, refused_topic))
