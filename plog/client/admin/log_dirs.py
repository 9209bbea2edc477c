"""Describe brokers' log directories, and move replicas between them.

Each broker serves requests about its own directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from plog.client.admin.base import AdminBase
from plog.client.admin.records import by_topic
from plog.client.admin.results import Results, outcome, raise_if_error
from plog.client.admin.routing import Answers, ask_nodes, by_broker, settle
from plog.client.admin.values import LogDirDescription, ReplicaInfo, TopicPartitionReplica
from plog.errors import KafkaError
from plog.types import TopicPartition
from plog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from plog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

ANY_LOG_DIR: Final = "any"
"""A special target that lets the broker choose the directory."""


class LogDirAdmin(AdminBase):
    """The operations on log directories."""

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> Results[int, dict[str, LogDirDescription]]:
        """Return each broker's log directories by path, with all replicas or those of `partitions`.

        If a directory has failed, its description contains the error.
        """
        request = describe_log_dirs_request(partitions)

        async def ask(node_id: int) -> dict[str, LogDirDescription]:
            response = await self._cluster.ask_node(node_id, request, DescribeLogDirsResponse)
            # With KIP-784, a broker can report an error for the whole request; older brokers report
            # errors only for individual directories.
            raise_if_error(response.error_code, None, f"the log directories of broker {node_id}")
            return described_log_dirs(response)

        return await by_broker(self._cluster, brokers, ask)

    async def alter_replica_log_dirs(
        self, paths: Mapping[TopicPartitionReplica, str]
    ) -> Results[TopicPartitionReplica, None]:
        """Start moving replicas to other log directories on the same brokers.

        Errors: LogDirNotFound, KafkaStorageError, ReplicaNotAvailable, and UnsupportedVersion if
        the broker does not support such moves.
        """

        async def ask(
            node_id: int, replicas: Sequence[TopicPartitionReplica]
        ) -> Answers[TopicPartitionReplica, None]:
            request = alter_replica_log_dirs_request(
                {replica: paths[replica] for replica in replicas}
            )
            response = await self._cluster.ask_node(node_id, request, AlterReplicaLogDirsResponse)
            return altered_replica_log_dirs(node_id, response)

        # Each broker moves only its own replicas.
        return await settle(
            self._cluster, paths, lambda waiting: ask_nodes(self._cluster, _by_node(waiting), ask)
        )


def _by_node(
    replicas: Iterable[TopicPartitionReplica],
) -> dict[int, list[TopicPartitionReplica]]:
    grouped: dict[int, list[TopicPartitionReplica]] = {}
    for replica in replicas:
        grouped.setdefault(replica.broker, []).append(replica)
    return grouped


# -- requests ---------------------------------------------------------------------------------


def describe_log_dirs_request(
    partitions: Iterable[TopicPartition] | None,
) -> DescribeLogDirsRequest:
    """Return the request to describe `partitions`, by default all."""
    if partitions is None:
        # None requests all replicas; an empty list would request none (KIP-113).
        return DescribeLogDirsRequest(topics=None)
    return DescribeLogDirsRequest(
        topics=[
            DescribableLogDirTopic(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    )


def alter_replica_log_dirs_request(
    paths: Mapping[TopicPartitionReplica, str],
) -> AlterReplicaLogDirsRequest:
    """Return the request to move one broker's replicas."""
    by_path: dict[str, list[TopicPartition]] = {}
    for replica, path in paths.items():
        by_path.setdefault(path, []).append(TopicPartition(replica.topic, replica.partition))
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                    for topic, numbers in by_topic(partitions).items()
                ],
            )
            for path, partitions in by_path.items()
        ]
    )


# -- responses --------------------------------------------------------------------------------


def described_log_dirs(response: DescribeLogDirsResponse) -> dict[str, LogDirDescription]:
    """Return the log directories of one broker, by path."""
    return {result.log_dir: _log_dir(result) for result in response.results}


def _log_dir(result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        path=result.log_dir,
        # One failed directory must not hide the others, so its error is part of the description.
        error=outcome(result.error_code, None, f"directory {result.log_dir}", None),
        replicas={
            TopicPartition(topic.name, found.partition_index): ReplicaInfo(
                size_bytes=found.partition_size,
                offset_lag=found.offset_lag,
                is_future=found.is_future_key,
            )
            for topic in result.topics
            for found in topic.partitions
        },
        # Brokers before KIP-827 do not return the file system's size.
        total_bytes=None if result.total_bytes < 0 else result.total_bytes,
        usable_bytes=None if result.usable_bytes < 0 else result.usable_bytes,
        is_cordoned=result.is_cordoned,
    )


def altered_replica_log_dirs(
    node_id: int, response: AlterReplicaLogDirsResponse
) -> dict[TopicPartitionReplica, KafkaError | None]:
    """Return the outcome for each replica of one broker."""
    return {
        TopicPartitionReplica(topic.topic_name, result.partition_index, node_id): outcome(
            result.error_code,
            None,
            f"{topic.topic_name}-{result.partition_index} of broker {node_id}",
            None,
        )
        for topic in response.results
        for result in topic.partitions
    }
