"""UpdateMetadata (key 6): the controller sends the live brokers and partition states to a broker.

Used in clusters with ZooKeeper; Kafka 4.0 removed it. Versions below 7 do not contain topic ids
(KIP-516). Changes by version:

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

    partition_index: int32 = field()
    controller_epoch: int32 = field()
    leader: int32 = field()
    leader_epoch: int32 = field()
    isr: list[int32] = field()
    zk_version: int32 = field()
    replicas: list[int32] = field()
    offline_replicas: list[int32] = field()


class UpdateMetadataTopicState(Struct):
    """A topic's partitions."""

    topic_name: str = field()
    topic_id: uuid = field()
    partition_states: list[UpdateMetadataPartitionState] = field()


class UpdateMetadataEndpoint(Struct):
    """A listener of a broker; `security_protocol` is the number of Kafka's SecurityProtocol."""

    port: int32 = field()
    host: str = field()
    listener: str = field()
    security_protocol: int16 = field()


class UpdateMetadataBroker(Struct):
    """A live broker."""

    id: int32 = field()
    endpoints: list[UpdateMetadataEndpoint] = field()
    rack: str | None = field(nullable="7+")


class UpdateMetadataRequest(
    ApiMessage, api_key=ApiKey.UPDATE_METADATA, versions="7-8", flexible="7+"
):
    """All live brokers, and the partitions whose state has changed.

    `type` is 1 for a change, 2 for all partitions, and 0 if it is unknown.
    """

    controller_id: int32 = field()
    is_k_raft_controller: bool = field("8+")
    type: int8 = field("8+", tag=0)
    controller_epoch: int32 = field()
    broker_epoch: int64 = field(default=-1)
    topic_states: list[UpdateMetadataTopicState] = field()
    live_brokers: list[UpdateMetadataBroker] = field()


class UpdateMetadataResponse(
    ApiMessage, api_key=ApiKey.UPDATE_METADATA, versions="7-8", flexible="7+"
):
    """The result."""

    error_code: int16 = field()
