"""LeaderAndIsr (key 4): the controller makes a broker leader or follower of partitions.

Used in clusters with ZooKeeper; Kafka 4.0 removed it. Changes by version:

  1  whether a partition is new (KIP-112)
  2  broker epoch (KIP-380); partitions grouped by topic
  3  replicas that a reassignment adds and removes (KIP-455)
  4  flexible
  5  topic ids (KIP-516); the response contains ids instead of names
  6  state of the recovery after an unclean election (KIP-704)
  7  whether a KRaft controller sent the request (KIP-866)
"""

from __future__ import annotations

from typing import Final

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32, int64, uuid

INCREMENTAL: Final = 1
FULL: Final = 2
"""The types of LeaderAndIsr and UpdateMetadata requests: a change, or everything."""


class LeaderAndIsrPartitionState(Struct):
    """The leader, replicas and ISR of a partition; `partition_epoch` is its znode's version."""

    topic_name: str = field("0-1", ignorable=True)
    partition_index: int32 = field()
    controller_epoch: int32 = field()
    leader: int32 = field()
    leader_epoch: int32 = field()
    isr: list[int32] = field()
    partition_epoch: int32 = field()
    replicas: list[int32] = field()
    adding_replicas: list[int32] = field("3+", ignorable=True)
    removing_replicas: list[int32] = field("3+", ignorable=True)
    is_new: bool = field("1+", ignorable=True)
    leader_recovery_state: int8 = field("6+")


class LeaderAndIsrTopicState(Struct):
    """A topic's partitions."""

    topic_name: str = field()
    topic_id: uuid = field("5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = field()


class LeaderAndIsrLiveLeader(Struct):
    """The address of a broker that leads one of the partitions."""

    broker_id: int32 = field()
    host_name: str = field()
    port: int32 = field()


class LeaderAndIsrRequest(ApiMessage, api_key=ApiKey.LEADER_AND_ISR, versions="0-7", flexible="4+"):
    """Partitions, with the epochs of the controller and of the receiving broker.

    `type` is `INCREMENTAL`, `FULL`, or 0 if it is unknown.
    """

    controller_id: int32 = field()
    is_k_raft_controller: bool = field("7+")
    controller_epoch: int32 = field()
    broker_epoch: int64 = field("2+", default=-1, ignorable=True)
    type: int8 = field("5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field("0-1")
    topic_states: list[LeaderAndIsrTopicState] = field("2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = field()


class LeaderAndIsrPartitionError(Struct):
    """The result for a partition."""

    topic_name: str = field("0-4", ignorable=True)
    partition_index: int32 = field()
    error_code: int16 = field()


class LeaderAndIsrTopicError(Struct):
    """A topic's partitions."""

    topic_id: uuid = field()
    partition_errors: list[LeaderAndIsrPartitionError] = field()


class LeaderAndIsrResponse(
    ApiMessage, api_key=ApiKey.LEADER_AND_ISR, versions="0-7", flexible="4+"
):
    """The result for each partition."""

    error_code: int16 = field()
    partition_errors: list[LeaderAndIsrPartitionError] = field("0-4")
    topics: list[LeaderAndIsrTopicError] = field("5+")
