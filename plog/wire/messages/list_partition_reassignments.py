"""ListPartitionReassignments (key 46): the partitions that are being reassigned."""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = field()
    partition_indexes: list[int32] = field()


class ListPartitionReassignmentsRequest(
    ApiMessage, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    """Partitions to list; null means all."""

    timeout_ms: int32 = field(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)


class OngoingPartitionReassignment(Struct):
    """A partition that is being reassigned."""

    partition_index: int32 = field()
    replicas: list[int32] = field()
    adding_replicas: list[int32] = field()
    removing_replicas: list[int32] = field()


class OngoingTopicReassignment(Struct):
    """A topic's partitions."""

    name: str = field()
    partitions: list[OngoingPartitionReassignment] = field()


class ListPartitionReassignmentsResponse(
    ApiMessage, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    """The partitions that are being reassigned."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    topics: list[OngoingTopicReassignment] = field()
