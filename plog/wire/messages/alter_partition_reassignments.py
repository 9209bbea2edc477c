"""AlterPartitionReassignments (key 45): move partitions to other brokers.

Changes by version:

  1  whether the replication factor may change (KIP-860)
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class ReassignablePartition(Struct):
    """The new replicas of a partition; null cancels its reassignment."""

    partition_index: int32 = field()
    replicas: list[int32] | None = field(default=None)


class ReassignableTopic(Struct):
    """A topic's partitions."""

    name: str = field()
    partitions: list[ReassignablePartition] = field()


class AlterPartitionReassignmentsRequest(
    ApiMessage, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+"
):
    """Partitions to reassign."""

    timeout_ms: int32 = field(default=60000)
    # True by default, because version 0 always allows the change.
    allow_replication_factor_change: bool = field("1+", default=True)
    topics: list[ReassignableTopic] = field()


class ReassignablePartitionResponse(Struct):
    """Whether the reassignment of a partition has started."""

    partition_index: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()


class ReassignableTopicResponse(Struct):
    """A topic's partitions."""

    name: str = field()
    partitions: list[ReassignablePartitionResponse] = field()


class AlterPartitionReassignmentsResponse(
    ApiMessage, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+"
):
    """The result for each partition."""

    throttle_time_ms: int32 = field()
    allow_replication_factor_change: bool = field("1+", default=True, ignorable=True)
    error_code: int16 = field()
    error_message: str | None = field()
    responses: list[ReassignableTopicResponse] = field()
