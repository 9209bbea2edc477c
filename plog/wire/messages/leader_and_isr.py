"""LeaderAndIsr (key 4): the controller makes a broker leader or follower of partitions.

Used in clusters with ZooKeeper; Kafka 4.0 removed it. Versions below 5 do not contain topic ids
(KIP-516). Changes by version:

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

    partition_index: int32 = field()
    controller_epoch: int32 = field()
    leader: int32 = field()
    leader_epoch: int32 = field()
    isr: list[int32] = field()
    partition_epoch: int32 = field()
    replicas: list[int32] = field()
    adding_replicas: list[int32] = field()
    removing_replicas: list[int32] = field()
    is_new: bool = field()
    leader_recovery_state: int8 = field("6+")


class LeaderAndIsrTopicState(Struct):
    """A topic's partitions."""

    topic_name: str = field()
    topic_id: uuid = field()
    partition_states: list[LeaderAndIsrPartitionState] = field()


class LeaderAndIsrLiveLeader(Struct):
    """The address of a broker that leads one of the partitions."""

    broker_id: int32 = field()
    host_name: str = field()
    port: int32 = field()


class LeaderAndIsrRequest(ApiMessage, api_key=ApiKey.LEADER_AND_ISR, versions="5-7", flexible="5+"):
    """Partitions, with the epochs of the controller and of the receiving broker.

    `type` is `INCREMENTAL`, `FULL`, or 0 if it is unknown.
    """

    controller_id: int32 = field()
    is_k_raft_controller: bool = field("7+")
    controller_epoch: int32 = field()
    broker_epoch: int64 = field(default=-1)
    type: int8 = field()
    topic_states: list[LeaderAndIsrTopicState] = field()
    live_leaders: list[LeaderAndIsrLiveLeader] = field()


class LeaderAndIsrPartitionError(Struct):
    """The result for a partition."""

    partition_index: int32 = field()
    error_code: int16 = field()


class LeaderAndIsrTopicError(Struct):
    """A topic's partitions."""

    topic_id: uuid = field()
    partition_errors: list[LeaderAndIsrPartitionError] = field()


class LeaderAndIsrResponse(
    ApiMessage, api_key=ApiKey.LEADER_AND_ISR, versions="5-7", flexible="5+"
):
    """The result for each partition."""

    error_code: int16 = field()
    topics: list[LeaderAndIsrTopicError] = field()
