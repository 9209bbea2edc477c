"""CreatePartitions (key 37): add partitions to existing topics.

Changes by version:

  2  flexible
  3  THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class CreatePartitionsAssignment(Struct):
    """The replicas of one new partition."""

    broker_ids: list[int32] = field()


class CreatePartitionsTopic(Struct):
    """The new partition count of a topic; null assignments let the broker choose."""

    name: str = field()
    # The total instead of the difference, so a repeated request cannot add partitions twice.
    count: int32 = field()
    assignments: list[CreatePartitionsAssignment] | None = field()


class CreatePartitionsRequest(
    ApiMessage, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"
):
    """Topics to add partitions to; the broker can also only validate the request."""

    topics: list[CreatePartitionsTopic] = field()
    timeout_ms: int32 = field()
    validate_only: bool = field()


class CreatePartitionsTopicResult(Struct):
    """The result for one topic."""

    name: str = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)


class CreatePartitionsResponse(
    ApiMessage, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"
):
    """The result for each topic."""

    throttle_time_ms: int32 = field()
    results: list[CreatePartitionsTopicResult] = field()
