"""OffsetDelete (key 47): delete a group's committed offsets (KIP-496)."""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class OffsetDeleteRequestPartition(Struct):
    """A partition whose offset is deleted."""

    partition_index: int32 = field()


class OffsetDeleteRequestTopic(Struct):
    """The partitions of one topic."""

    name: str = field()
    partitions: list[OffsetDeleteRequestPartition] = field()


class OffsetDeleteRequest(ApiMessage, api_key=ApiKey.OFFSET_DELETE, versions="0"):
    """A group's committed offsets to delete."""

    group_id: str = field()
    topics: list[OffsetDeleteRequestTopic] = field()


class OffsetDeleteResponsePartition(Struct):
    """The result for one offset."""

    partition_index: int32 = field()
    error_code: int16 = field()


class OffsetDeleteResponseTopic(Struct):
    """The results for the offsets of one topic."""

    name: str = field()
    partitions: list[OffsetDeleteResponsePartition] = field()


class OffsetDeleteResponse(ApiMessage, api_key=ApiKey.OFFSET_DELETE, versions="0"):
    """The result for each offset, or an error for the entire request."""

    error_code: int16 = field()
    throttle_time_ms: int32 = field(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field()
