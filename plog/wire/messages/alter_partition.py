"""AlterPartition (key 56): a leader asks the controller to change the ISR of partitions (KIP-497).

Changes by version:

  2  topic ids instead of names (KIP-841); Kafka 4.0 removed versions 0 and 1
  3  broker epochs of the replicas in the new ISR (KIP-903)
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    """A replica in the new ISR; the epoch is -1 if the leader does not know it."""

    broker_id: int32 = field()
    broker_epoch: int64 = field(default=-1)


class AlterPartitionRequestPartition(Struct):
    """The new ISR of a partition, and the epochs that it is based on."""

    partition_index: int32 = field()
    leader_epoch: int32 = field()
    new_isr: list[int32] = field("0-2")
    new_isr_with_epochs: list[BrokerState] = field("3+")
    leader_recovery_state: int8 = field()
    partition_epoch: int32 = field()


class AlterPartitionRequestTopic(Struct):
    """A topic's partitions."""

    topic_id: uuid = field(ignorable=True)
    partitions: list[AlterPartitionRequestPartition] = field()


class AlterPartitionRequest(
    ApiMessage, api_key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="0+"
):
    """Changes of one leader, with the leader's broker epoch."""

    broker_id: int32 = field()
    broker_epoch: int64 = field(default=-1)
    topics: list[AlterPartitionRequestTopic] = field()


class AlterPartitionResponsePartition(Struct):
    """The state of a partition after the request, or an error."""

    partition_index: int32 = field()
    error_code: int16 = field()
    leader_id: int32 = field()
    leader_epoch: int32 = field()
    isr: list[int32] = field()
    leader_recovery_state: int8 = field(ignorable=True)
    partition_epoch: int32 = field()


class AlterPartitionResponseTopic(Struct):
    """A topic's partitions."""

    topic_id: uuid = field(ignorable=True)
    partitions: list[AlterPartitionResponsePartition] = field()


class AlterPartitionResponse(
    ApiMessage, api_key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="0+"
):
    """The result for each partition."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    topics: list[AlterPartitionResponseTopic] = field()
