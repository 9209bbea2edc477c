"""DescribeTopicPartitions (key 75): topics and partitions in pages (KIP-966)."""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, uuid

NO_OPERATIONS = -(2**31)


class DescribedTopic(Struct):
    """A topic to describe."""

    name: str = field()


class Cursor(Struct):
    """The first partition of a page."""

    topic_name: str = field()
    partition_index: int32 = field()


class DescribeTopicPartitionsRequest(
    ApiMessage, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"
):
    """The topics, or all topics if empty, and the first partition of the page or null."""

    topics: list[DescribedTopic] = field()
    # Kafka's default; the broker lowers it to max.request.partition.size.limit.
    response_partition_limit: int32 = field(default=2000)
    cursor: Cursor | None = field(default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    """A partition: leader, replicas, ISR and eligible leaders."""

    error_code: int16 = field()
    partition_index: int32 = field()
    leader_id: int32 = field()
    leader_epoch: int32 = field(default=-1, ignorable=True)
    replica_nodes: list[int32] = field()
    isr_nodes: list[int32] = field()
    eligible_leader_replicas: list[int32] | None = field(default=None)
    last_known_elr: list[int32] | None = field(default=None)
    offline_replicas: list[int32] = field(ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    """A topic, with the partitions that fit in the page."""

    error_code: int16 = field()
    name: str | None = field()
    topic_id: uuid = field(ignorable=True)
    is_internal: bool = field(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field()
    topic_authorized_operations: int32 = field(default=NO_OPERATIONS)


class DescribeTopicPartitionsResponse(
    ApiMessage, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"
):
    """A page, and the cursor of the next page, which is null on the last page."""

    throttle_time_ms: int32 = field(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field()
    next_cursor: Cursor | None = field(default=None)
