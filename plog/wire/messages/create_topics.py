"""CreateTopics (key 19): create topics.

Changes by version:

  2  throttle time
  4  -1 requests the broker's default number of partitions and replicas (KIP-464)
  5  flexible; the response contains partitions, replicas and settings (KIP-525)
  6  THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)
  7  topic id (KIP-516)

Versions 0 and 1 were removed in Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32, uuid


class CreatableReplicaAssignment(Struct):
    """The replicas of one partition."""

    partition_index: int32 = field()
    broker_ids: list[int32] = field()


class CreatableTopicConfig(Struct):
    """A setting of the new topic."""

    name: str = field()
    value: str | None = field()


class CreatableTopic(Struct):
    """A topic to create; counts are -1 for the default, or if assignments are given."""

    name: str = field()
    num_partitions: int32 = field()
    replication_factor: int16 = field()
    assignments: list[CreatableReplicaAssignment] = field()
    configs: list[CreatableTopicConfig] = field()


class CreateTopicsRequest(ApiMessage, api_key=ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+"):
    """Topics to create, or only to validate."""

    topics: list[CreatableTopic] = field()
    timeout_ms: int32 = field(default=60000)
    validate_only: bool = field()


class CreatableTopicConfigs(Struct):
    """A setting of the created topic."""

    name: str = field()
    value: str | None = field()
    read_only: bool = field()
    config_source: int8 = field(default=-1)
    is_sensitive: bool = field()


class CreatableTopicResult(Struct):
    """A created topic, or an error."""

    name: str = field()
    topic_id: uuid = field("7+", ignorable=True)
    error_code: int16 = field()
    error_message: str | None = field()
    # Set if the client may create the topic but not describe its settings, which are then null.
    topic_config_error_code: int16 = field("5+", tag=0, ignorable=True)
    num_partitions: int32 = field("5+", default=-1, ignorable=True)
    replication_factor: int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field("5+", ignorable=True)


class CreateTopicsResponse(ApiMessage, api_key=ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+"):
    """The result for each topic."""

    throttle_time_ms: int32 = field()
    topics: list[CreatableTopicResult] = field()
