"""ListOffsets (key 2): look up offsets by timestamp.

Changes by version:

   1  one offset and its timestamp for each partition (KIP-79)
   2  isolation level, throttle time (KIP-98)
   4  leader epochs (KIP-320)
   5  OFFSET_NOT_AVAILABLE may be returned (KIP-207)
   6  flexible
   7  offset of the largest timestamp, -3 (KIP-734)
   8  earliest local offset, -4 (KIP-405)
   9  latest tiered offset, -5 (KIP-1005)
  10  timeout for lookups in remote storage (KIP-1075)
  11  earliest offset that is not uploaded yet, -6 (KIP-1023)

Version 0 returned a list of segment base offsets and was removed in Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32, int64


class ListOffsetsPartition(Struct):
    """A timestamp to look up in ms; -1 is the latest offset, -2 the earliest."""

    partition_index: int32 = field()
    current_leader_epoch: int32 = field("4+", default=-1, ignorable=True)
    timestamp: int64 = field()


class ListOffsetsTopic(Struct):
    """The lookups in one topic."""

    name: str = field()
    partitions: list[ListOffsetsPartition] = field()


class ListOffsetsRequest(ApiMessage, api_key=ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+"):
    """Timestamps to look up."""

    replica_id: int32 = field()
    # Not ignorable: for version 1, the latest offset is always the high watermark.
    isolation_level: int8 = field("2+")
    topics: list[ListOffsetsTopic] = field()
    timeout_ms: int32 = field("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """The first offset at or after the timestamp, and its timestamp; -1 if not found."""

    partition_index: int32 = field()
    error_code: int16 = field()
    timestamp: int64 = field(default=-1)
    offset: int64 = field(default=-1)
    leader_epoch: int32 = field("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """The offsets of one topic."""

    name: str = field()
    partitions: list[ListOffsetsPartitionResponse] = field()


class ListOffsetsResponse(ApiMessage, api_key=ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+"):
    """Offsets by partition."""

    throttle_time_ms: int32 = field("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field()
