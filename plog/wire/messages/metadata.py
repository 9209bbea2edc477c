"""Metadata (key 3): the brokers, and the leaders and replicas of partitions.

Changes by version:

   1  rack, controller, internal topics; null requests all topics, an empty list none
   2  cluster id (KIP-78)
   3  throttle time
   4  the client chooses whether topics are created automatically
   5  offline replicas (KIP-112)
   7  leader epoch (KIP-320)
   8  authorized operations on request (KIP-430)
   9  flexible
  10  topic ids (KIP-516), usable in requests from version 12
  11  the cluster's authorized operations move to DescribeCluster (KIP-700)
  12  topics can be requested by id
  13  error code for the response (KIP-1102)

In version 0, an empty list requests all topics.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, uuid

NO_OPERATIONS = -(1 << 31)
"""The value of authorized operations if they were not requested."""


class MetadataRequestTopic(Struct):
    """A topic, by name or by id."""

    topic_id: uuid = field("10+", ignorable=True)
    name: str | None = field(nullable="10+")


class MetadataRequest(ApiMessage, api_key=ApiKey.METADATA, versions="0-13", flexible="9+"):
    """Topics to describe; null means all."""

    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    # True by default, because brokers create topics in versions without this field.
    allow_auto_topic_creation: bool = field("4+", default=True)
    include_cluster_authorized_operations: bool = field("8-10")
    include_topic_authorized_operations: bool = field("8+")


class MetadataResponseBroker(Struct):
    """A broker, and its address for this client."""

    node_id: int32 = field()
    host: str = field()
    port: int32 = field()
    rack: str | None = field("1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """The leader, replicas and ISR of a partition."""

    error_code: int16 = field()
    partition_index: int32 = field()
    leader_id: int32 = field()
    leader_epoch: int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[int32] = field()
    isr_nodes: list[int32] = field()
    offline_replicas: list[int32] = field("5+", ignorable=True)


class MetadataResponseTopic(Struct):
    """A topic and its partitions, or an error."""

    error_code: int16 = field()
    # Null if the request contains an id that is unknown.
    name: str | None = field(nullable="12+")
    topic_id: uuid = field("10+", ignorable=True)
    is_internal: bool = field("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field()
    topic_authorized_operations: int32 = field("8+", default=NO_OPERATIONS)


class MetadataResponse(ApiMessage, api_key=ApiKey.METADATA, versions="0-13", flexible="9+"):
    """The cluster's metadata, as known to this broker."""

    throttle_time_ms: int32 = field("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field()
    cluster_id: str | None = field("2+", default=None, ignorable=True)
    controller_id: int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field()
    cluster_authorized_operations: int32 = field("8-10", default=NO_OPERATIONS)
    error_code: int16 = field("13+", ignorable=True)
