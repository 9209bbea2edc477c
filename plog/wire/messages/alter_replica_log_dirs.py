"""AlterReplicaLogDirs (key 34): move replicas to other log directories of their broker (KIP-113).

Changes by version:

  2  flexible

Versions 0 and 1 are identical; version 0 was removed in Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: str = field()
    partitions: list[int32] = field()


class AlterReplicaLogDir(Struct):
    """The absolute path of a log directory, and the partitions to move there."""

    path: str = field()
    topics: list[AlterReplicaLogDirTopic] = field()


class AlterReplicaLogDirsRequest(
    ApiMessage, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+"
):
    """The new log directories of replicas."""

    dirs: list[AlterReplicaLogDir] = field()


class AlterReplicaLogDirPartitionResult(Struct):
    """Whether the broker has started to move a replica."""

    partition_index: int32 = field()
    error_code: int16 = field()


class AlterReplicaLogDirTopicResult(Struct):
    """A topic's partitions."""

    topic_name: str = field()
    partitions: list[AlterReplicaLogDirPartitionResult] = field()


class AlterReplicaLogDirsResponse(
    ApiMessage, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+"
):
    """The result for each replica."""

    throttle_time_ms: int32 = field()
    results: list[AlterReplicaLogDirTopicResult] = field()
