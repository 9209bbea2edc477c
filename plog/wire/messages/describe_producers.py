"""DescribeProducers (key 61): the idempotent producers of a partition (KIP-664)."""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64


class TopicRequest(Struct):
    """Partitions of one topic."""

    name: str = field()
    partition_indexes: list[int32] = field()


class DescribeProducersRequest(
    ApiMessage, api_key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"
):
    """Partitions to describe."""

    topics: list[TopicRequest] = field()


class ProducerState(Struct):
    """A producer; last sequence, timestamp and transaction start offset are -1 if unset."""

    producer_id: int64 = field()
    # An int32 in Kafka's declaration, although epochs are int16 everywhere else.
    producer_epoch: int32 = field()
    last_sequence: int32 = field(default=-1)
    last_timestamp: int64 = field(default=-1)
    coordinator_epoch: int32 = field()
    current_txn_start_offset: int64 = field(default=-1)


class PartitionResponse(Struct):
    """The producers of a partition."""

    partition_index: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    active_producers: list[ProducerState] = field()


class TopicResponse(Struct):
    """A topic's partitions."""

    name: str = field()
    partitions: list[PartitionResponse] = field()


class DescribeProducersResponse(
    ApiMessage, api_key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"
):
    """The producers of each partition."""

    throttle_time_ms: int32 = field()
    topics: list[TopicResponse] = field()
