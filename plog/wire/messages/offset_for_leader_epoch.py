"""OffsetForLeaderEpoch (key 23): the end offsets of leader epochs.

Changes by version:

  2  the leader epoch that the client knows, for fencing (KIP-320)
  3  the replica id of the requester
  4  flexible

Versions 0 and 1 were removed in Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64


class OffsetForLeaderPartition(Struct):
    """A partition, its current leader epoch (-1 for any), and the epoch to look up."""

    partition: int32 = field()
    current_leader_epoch: int32 = field("2+", default=-1, ignorable=True)
    leader_epoch: int32 = field()


class OffsetForLeaderTopic(Struct):
    """A topic's partitions."""

    topic: str = field()
    partitions: list[OffsetForLeaderPartition] = field()


class OffsetForLeaderEpochRequest(
    ApiMessage, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+"
):
    """Epochs to look up; `replica_id` is -1 for consumers, -2 for debuggers."""

    replica_id: int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field()


class EpochEndOffset(Struct):
    """The largest epoch up to the requested epoch, and its end offset; -1 if unknown."""

    error_code: int16 = field()
    partition: int32 = field()
    leader_epoch: int32 = field("1+", default=-1, ignorable=True)
    end_offset: int64 = field(default=-1)


class OffsetForLeaderTopicResult(Struct):
    """A topic's partitions."""

    topic: str = field()
    partitions: list[EpochEndOffset] = field()


class OffsetForLeaderEpochResponse(
    ApiMessage, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+"
):
    """The end offsets of the epochs."""

    throttle_time_ms: int32 = field("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field()
