"""OffsetCommit (key 8): how far a group has come.

  3  throttle time                     5  no retention time any more (KIP-211)
  6  leader epoch (KIP-320)            7  group instance id (KIP-345)
  8  flexible
  9  GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH may be answered (KIP-848)
 10  topic ids instead of names

Versions 0 and 1 are gone since Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64, uuid


class OffsetCommitRequestPartition(Struct):
    """An offset to keep, with what the client wants to remember of it."""

    partition_index: int32 = field()
    committed_offset: int64 = field()
    committed_leader_epoch: int32 = field("6+", default=-1, ignorable=True)
    committed_metadata: str | None = field()


class OffsetCommitRequestTopic(Struct):
    """The offsets of one topic."""

    name: str = field("0-9", ignorable=True)
    topic_id: uuid = field("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field()


class OffsetCommitRequest(ApiMessage, api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+"):
    """Offsets to keep. Generation -1 without a member id comes from who is in no group."""

    group_id: str = field()
    generation_id_or_member_epoch: int32 = field("1+", default=-1, ignorable=True)
    member_id: str = field("1+", ignorable=True)
    group_instance_id: str | None = field("7+", default=None)
    retention_time_ms: int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field()


class OffsetCommitResponsePartition(Struct):
    """What became of one offset."""

    partition_index: int32 = field()
    error_code: int16 = field()


class OffsetCommitResponseTopic(Struct):
    """What became of the offsets of one topic."""

    name: str = field("0-9", ignorable=True)
    topic_id: uuid = field("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field()


class OffsetCommitResponse(
    ApiMessage, api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+"
):
    """What became of each offset."""

    throttle_time_ms: int32 = field("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field()
