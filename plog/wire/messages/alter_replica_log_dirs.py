"""AlterReplicaLogDirs (key 34): move replicas to other log directories of their broker (KIP-113).

2  flexible

Version 0, like version 1, is gone since Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: str = field()
    partitions: list[int32] = field()


class AlterReplicaLogDir(Struct):
    """A directory, by its absolute path, and what is to lie in it."""

    path: str = field()
    topics: list[AlterReplicaLogDirTopic] = field()


class AlterReplicaLogDirsRequest(
    ApiMessage, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+"
):
    """What is to lie where."""

    dirs: list[AlterReplicaLogDir] = field()


class AlterReplicaLogDirPartitionResult(Struct):
    """Whether a replica is on its way, or why it is not."""

    partition_index: int32 = field()
    error_code: int16 = field()


class AlterReplicaLogDirTopicResult(Struct):
    """A topic's partitions."""

    topic_name: str = field()
    partitions: list[AlterReplicaLogDirPartitionResult] = field()


class AlterReplicaLogDirsResponse(
    ApiMessage, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+"
):
    """What became of each replica."""

    throttle_time_ms: int32 = field()
    results: list[AlterReplicaLogDirTopicResult] = field()
