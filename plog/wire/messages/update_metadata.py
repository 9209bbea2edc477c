"""UpdateMetadata (key 6): the controller sends the live brokers and partition states to a broker.

Used in clusters with ZooKeeper; Kafka 4.0 removed it. Changes by version:

  1  several endpoints for each broker (KIP-103)
  2  rack
  3  listener names
  4  offline replicas (KIP-112)
  5  broker epoch (KIP-380); partitions grouped by topic
  6  flexible
  7  topic ids (KIP-516)
  8  whether a KRaft controller sent the request, and its type (KIP-866)
"""

from __future__ import annotations

from typing import Final

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32, int64, uuid

LEADER_DURING_DELETE: Final = -2
"""The leader of a partition whose topic is being deleted."""


class UpdateMetadataPartitionState(Struct):
    """The state of a partition; its leader may be `LEADER_DURING_DELETE`."""

    topic_name: str = field("0-4", ignorable=True)
    partition_index: int32 = field()
    controller_epoch: int32 = field()
    leader: int32 = field()
    leader_epoch: int32 = field()
    isr: list[int32] = field()
    zk_version: int32 = field()
    replicas: list[int32] = field()
    offline_replicas: list[int32] = field("4+", ignorable=True)


class UpdateMetadataTopicState(Struct):
    """A topic's partitions."""

    topic_name: str = field()
    topic_id: uuid = field("7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = field()


class UpdateMetadataEndpoint(Struct):
    """A listener of a broker; `security_protocol` is the number of Kafka's SecurityProtocol."""

    port: int32 = field()
    host: str = field()
    listener: str = field("3+", ignorable=True)
    security_protocol: int16 = field()


class UpdateMetadataBroker(Struct):
    """A live broker."""

    id: int32 = field()
    v0_host: str = field("0", ignorable=True)
    v0_port: int32 = field("0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = field("1+", ignorable=True)
    rack: str | None = field("2+", nullable="0+", ignorable=True)


class UpdateMetadataRequest(
    ApiMessage, api_key=ApiKey.UPDATE_METADATA, versions="0-8", flexible="6+"
):
    """All live brokers, and the partitions whose state has changed.

    `type` is 1 for a change, 2 for all partitions, and 0 if it is unknown.
    """

    controller_id: int32 = field()
    is_k_raft_controller: bool = field("8+")
    type: int8 = field("8+", tag=0)
    controller_epoch: int32 = field()
    broker_epoch: int64 = field("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field("0-4")
    topic_states: list[UpdateMetadataTopicState] = field("5+")
    live_brokers: list[UpdateMetadataBroker] = field()


class UpdateMetadataResponse(
    ApiMessage, api_key=ApiKey.UPDATE_METADATA, versions="0-8", flexible="6+"
):
    """The result."""

    error_code: int16 = field()
