"""OffsetCommit (key 8): commit a group's offsets.

Changes by version:

  3  throttle time                     5  retention time removed (KIP-211)
  6  leader epoch (KIP-320)            7  group instance id (KIP-345)
  8  flexible
  9  GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH may be returned (KIP-848)
 10  topic ids instead of names

Versions 0 and 1 were removed in Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64, uuid


class OffsetCommitRequestPartition(Struct):
    """An offset to commit, with the client's metadata."""

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
    """Offsets to commit. Clients outside a group use generation -1 without a member id."""

    group_id: str = field()
    generation_id_or_member_epoch: int32 = field("1+", default=-1, ignorable=True)
    member_id: str = field("1+", ignorable=True)
    group_instance_id: str | None = field("7+", default=None)
    # -1 means offsets.retention.minutes, which applies to all groups since version 5.
    retention_time_ms: int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field()


class OffsetCommitResponsePartition(Struct):
    """The result for one offset."""

    partition_index: int32 = field()
    error_code: int16 = field()


class OffsetCommitResponseTopic(Struct):
    """The results for the offsets of one topic."""

    name: str = field("0-9", ignorable=True)
    topic_id: uuid = field("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field()


class OffsetCommitResponse(
    ApiMessage, api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+"
):
    """The result for each offset."""

    throttle_time_ms: int32 = field("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field()
