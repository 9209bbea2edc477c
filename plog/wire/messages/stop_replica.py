"""StopReplica (key 5): the controller makes a broker stop replicas, and possibly delete them.

Used in clusters with ZooKeeper; Kafka 4.0 removed it. Changes by version:

  1  broker epoch (KIP-380); partitions grouped by topic
  2  flexible
  3  leader epoch and deletion of each partition (KIP-570)
  4  whether a KRaft controller sent the request (KIP-866)
"""

from __future__ import annotations

from typing import Final

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64

EPOCH_DURING_DELETE: Final = -2
"""The leader epoch of a partition whose topic is being deleted; it exceeds all epochs."""


class StopReplicaPartitionV0(Struct):
    """A partition in version 0."""

    topic_name: str = field()
    partition_index: int32 = field()


class StopReplicaTopicV1(Struct):
    """A topic's partitions in versions 1 and 2."""

    name: str = field()
    partition_indexes: list[int32] = field()


class StopReplicaPartitionState(Struct):
    """A partition; its leader epoch is -1 if unknown, or `EPOCH_DURING_DELETE`."""

    partition_index: int32 = field()
    leader_epoch: int32 = field(default=-1)
    delete_partition: bool = field()


class StopReplicaTopicState(Struct):
    """A topic's partitions."""

    topic_name: str = field()
    partition_states: list[StopReplicaPartitionState] = field()


class StopReplicaRequest(ApiMessage, api_key=ApiKey.STOP_REPLICA, versions="0-4", flexible="2+"):
    """Partitions, with the epochs of the controller and of the receiving broker."""

    controller_id: int32 = field()
    is_k_raft_controller: bool = field("4+")
    controller_epoch: int32 = field()
    broker_epoch: int64 = field("1+", default=-1, ignorable=True)
    delete_partitions: bool = field("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = field("0")
    topics: list[StopReplicaTopicV1] = field("1-2")
    topic_states: list[StopReplicaTopicState] = field("3+")


class StopReplicaPartitionError(Struct):
    """The result for a partition."""

    topic_name: str = field()
    partition_index: int32 = field()
    error_code: int16 = field()


class StopReplicaResponse(ApiMessage, api_key=ApiKey.STOP_REPLICA, versions="0-4", flexible="2+"):
    """The result for each partition."""

    error_code: int16 = field()
    partition_errors: list[StopReplicaPartitionError] = field()
