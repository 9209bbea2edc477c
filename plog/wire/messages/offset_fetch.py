"""OffsetFetch (key 9): read the committed offsets of one or several groups.

Changes by version:

  2  null for all topics; an error code for the request
  3  throttle time        5  leader epoch (KIP-320)        6  flexible
  7  require stable; UNSTABLE_OFFSET_COMMIT may be returned (KIP-447)
  8  several groups (KIP-709)
  9  member id and epoch (KIP-848)
 10  topic ids instead of names

Version 0, which read from ZooKeeper, was removed in Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64, uuid


# Kafka declares the old and the new form separately; only the plural distinguishes the new names.
class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic, up to version 7."""

    name: str = field("0-7")
    partition_indexes: list[int32] = field("0-7")


class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic, in version 8 and later."""

    name: str = field("8-9", ignorable=True)
    topic_id: uuid = field("10+", ignorable=True)
    partition_indexes: list[int32] = field("8+")


class OffsetFetchRequestGroup(Struct):
    """A group; null topics mean all its offsets."""

    group_id: str = field("8+")
    member_id: str | None = field("9+", default=None, ignorable=True)
    member_epoch: int32 = field("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field("8+")


class OffsetFetchRequest(ApiMessage, api_key=ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+"):
    """One group up to version 7, several groups in version 8 and later."""

    group_id: str = field("0-7")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+")
    # Not ignorable: an older broker would return offsets that an open transaction may replace.
    require_stable: bool = field("7+")


class OffsetFetchResponsePartition(Struct):
    """An offset, up to version 7; -1 if none is committed."""

    partition_index: int32 = field("0-7")
    committed_offset: int64 = field("0-7")
    committed_leader_epoch: int32 = field("5-7", default=-1, ignorable=True)
    metadata: str | None = field("0-7")
    error_code: int16 = field("0-7")


class OffsetFetchResponseTopic(Struct):
    """The offsets of one topic, up to version 7."""

    name: str = field("0-7")
    partitions: list[OffsetFetchResponsePartition] = field("0-7")


class OffsetFetchResponsePartitions(Struct):
    """An offset, in version 8 and later; -1 if none is committed."""

    partition_index: int32 = field("8+")
    committed_offset: int64 = field("8+")
    committed_leader_epoch: int32 = field("8+", default=-1, ignorable=True)
    metadata: str | None = field("8+")
    error_code: int16 = field("8+")


class OffsetFetchResponseTopics(Struct):
    """The offsets of one topic, in version 8 and later."""

    name: str = field("8-9", ignorable=True)
    topic_id: uuid = field("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field("8+")


class OffsetFetchResponseGroup(Struct):
    """The offsets of one group, or an error."""

    group_id: str = field("8+")
    topics: list[OffsetFetchResponseTopics] = field("8+")
    error_code: int16 = field("8+")


class OffsetFetchResponse(ApiMessage, api_key=ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+"):
    """One group up to version 7, several groups in version 8 and later."""

    throttle_time_ms: int32 = field("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7")
    error_code: int16 = field("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+")
