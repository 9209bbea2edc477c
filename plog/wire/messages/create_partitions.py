"""CreatePartitions (key 37): more partitions for topics that exist.

2  flexible
3  THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class CreatePartitionsAssignment(Struct):
    """The brokers chosen by hand for one new partition."""

    broker_ids: list[int32] = field()


class CreatePartitionsTopic(Struct):
    """How many partitions a topic is to have; null assignments let the broker choose."""

    name: str = field()
    count: int32 = field()
    assignments: list[CreatePartitionsAssignment] | None = field()


class CreatePartitionsRequest(
    ApiMessage, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"
):
    """Topics to give more partitions, or only to check."""

    topics: list[CreatePartitionsTopic] = field()
    timeout_ms: int32 = field()
    validate_only: bool = field()


class CreatePartitionsTopicResult(Struct):
    """What became of a topic."""

    name: str = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)


class CreatePartitionsResponse(
    ApiMessage, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"
):
    """What became of each topic."""

    throttle_time_ms: int32 = field()
    results: list[CreatePartitionsTopicResult] = field()
