"""StopReplica (key 5): the controller makes a broker stop replicas, and possibly delete them.

Used in clusters with ZooKeeper; Kafka 4.0 removed it. Versions below 3 do not contain leader epochs
(KIP-570). Changes by version:

  4  whether a KRaft controller sent the request (KIP-866)
"""

from __future__ import annotations

from typing import Final

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64

EPOCH_DURING_DELETE: Final = -2
"""The leader epoch of a partition whose topic is being deleted; it exceeds all epochs."""


class StopReplicaPartitionState(Struct):
    """A partition; its leader epoch is -1 if unknown, or `EPOCH_DURING_DELETE`."""

    partition_index: int32 = field()
    leader_epoch: int32 = field(default=-1)
    delete_partition: bool = field()


class StopReplicaTopicState(Struct):
    """A topic's partitions."""

    topic_name: str = field()
    partition_states: list[StopReplicaPartitionState] = field()


class StopReplicaRequest(ApiMessage, api_key=ApiKey.STOP_REPLICA, versions="3-4", flexible="3+"):
    """Partitions, with the epochs of the controller and of the receiving broker."""

    controller_id: int32 = field()
    is_k_raft_controller: bool = field("4+")
    controller_epoch: int32 = field()
    broker_epoch: int64 = field(default=-1)
    topic_states: list[StopReplicaTopicState] = field()


class StopReplicaPartitionError(Struct):
    """The result for a partition."""

    topic_name: str = field()
    partition_index: int32 = field()
    error_code: int16 = field()


class StopReplicaResponse(ApiMessage, api_key=ApiKey.STOP_REPLICA, versions="3-4", flexible="3+"):
    """The result for each partition."""

    error_code: int16 = field()
    partition_errors: list[StopReplicaPartitionError] = field()
