"""DescribeQuorum (key 55): the replicas of the metadata log and their positions.

Changes by version:

  1  times when each replica last fetched and last caught up (KIP-836)
  2  error messages, addresses, directory ids (KIP-853)
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64, uint16, uuid


class QuorumPartition(Struct):
    """A partition to describe."""

    partition_index: int32 = field()


class QuorumTopic(Struct):
    """A topic to describe; only the metadata log has a quorum."""

    topic_name: str = field()
    partitions: list[QuorumPartition] = field()


class DescribeQuorumRequest(
    ApiMessage, api_key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+"
):
    """The metadata log, by name."""

    topics: list[QuorumTopic] = field()


class ReplicaState(Struct):
    """A replica of the metadata log; times are -1 if unknown."""

    replica_id: int32 = field()
    replica_directory_id: uuid = field("2+")
    log_end_offset: int64 = field()
    last_fetch_timestamp: int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int64 = field("1+", default=-1, ignorable=True)


class QuorumPartitionState(Struct):
    """The quorum of one partition."""

    partition_index: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field("2+", ignorable=True)
    leader_id: int32 = field()
    leader_epoch: int32 = field()
    high_watermark: int64 = field()
    current_voters: list[ReplicaState] = field()
    observers: list[ReplicaState] = field()


class QuorumTopicState(Struct):
    """A topic's partitions."""

    topic_name: str = field()
    partitions: list[QuorumPartitionState] = field()


class QuorumListener(Struct):
    """An address of a voter."""

    name: str = field()
    host: str = field()
    port: uint16 = field()


class QuorumNode(Struct):
    """A voter and its listeners."""

    node_id: int32 = field()
    listeners: list[QuorumListener] = field()


class DescribeQuorumResponse(
    ApiMessage, api_key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+"
):
    """The quorum."""

    error_code: int16 = field()
    error_message: str | None = field("2+", ignorable=True)
    topics: list[QuorumTopicState] = field()
    nodes: list[QuorumNode] = field("2+")
