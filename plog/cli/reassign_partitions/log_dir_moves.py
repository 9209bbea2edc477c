"""Moves of replicas between the log directories of a broker, and how far they are (KIP-113)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from plog.client.admin.brokers import BrokerAdmin
from plog.client.admin.log_dirs import LogDirAdmin
from plog.client.admin.results import Results
from plog.client.admin.values import LogDirDescription, TopicPartitionReplica
from plog.client.network.cluster import Cluster
from plog.errors import ErrorCode, KafkaError, UnsupportedVersion
from plog.types import TopicPartition
from plog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirMove:
    """A replica's target directory, its current one and the one that it is being moved to."""

    target: str
    current: str | None
    future: str | None

    @property
    def is_active(self) -> bool:
        """Whether the replica is being moved, to the target or another directory."""
        return self.current is not None and self.future is not None

    def line(self, replica: TopicPartitionReplica) -> str:
        """Return the line of Kafka's tool."""
        topic, partition, broker = replica
        if self.current is None:
            return (
                f"Partition {topic}-{partition} is not found in any live log dir on broker"
                f" {broker}. There is likely an offline log directory on the broker."
            )
        if self.future == self.target:
            return f"Reassignment of replica {topic}-{partition}-{broker} is still in progress."
        if self.future is not None:
            return (
                f"Partition {topic}-{partition} on broker {broker} is being moved to log dir"
                f" {self.future} instead of {self.target}."
            )
        if self.current != self.target:
            return (
                f"Partition {topic}-{partition} on broker {broker} is not being moved from log dir"
                f" {self.current} to {self.target}."
            )
        return f"Reassignment of replica {topic}-{partition}-{broker} completed successfully."


async def find_log_dir_moves(
    cluster: Cluster, targets: Mapping[TopicPartitionReplica, str]
) -> dict[TopicPartitionReplica, LogDirMove]:
    """Return the state of each replica's move. Raises the first error of a broker."""
    if not targets:
        return {}
    described = (await _describe(cluster, targets)).raise_first()
    current, future = _paths(described, is_future=False), _paths(described, is_future=True)
    return {
        replica: LogDirMove(
            target=targets[replica], current=current.get(replica), future=future.get(replica)
        )
        for replica in sorted(targets, key=lambda each: (each.broker, each.topic, each.partition))
    }


async def current_log_dirs(
    cluster: Cluster, replicas: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartitionReplica, str]:
    """Return the directory of each replica, unless its broker is not available.

    The result is empty if the brokers cannot move replicas to directories, as plog's brokers.
    """
    wanted = [
        TopicPartitionReplica(*partition, broker)
        for partition, brokers in replicas.items()
        for broker in brokers
    ]
    available = (await BrokerAdmin(cluster).describe_cluster()).brokers
    wanted = [replica for replica in wanted if replica.broker in available]
    if not wanted:
        return {}
    if not await _is_supported(cluster, wanted[0].broker):
        return {}
    paths = _paths((await _describe(cluster, wanted)).values_by_key, is_future=False)
    return {replica: paths[replica] for replica in wanted if replica in paths}


async def check_supported(cluster: Cluster, broker: int) -> None:
    """Raise UnsupportedVersion unless a broker can move replicas between its directories."""
    if not await _is_supported(cluster, broker):
        raise UnsupportedVersion(
            f"cannot move replicas to other log directories: broker {broker} does not support"
            " AlterReplicaLogDirs; remove log_dirs from the file, and"
            " --replica-alter-log-dirs-throttle from the command"
        )


async def _is_supported(cluster: Cluster, broker: int) -> bool:
    return (await cluster.connection(broker)).speaks(AlterReplicaLogDirsRequest)


async def _describe(
    cluster: Cluster, replicas: Collection[TopicPartitionReplica]
) -> Results[int, dict[str, LogDirDescription]]:
    return await LogDirAdmin(cluster).describe_log_dirs(
        sorted({replica.broker for replica in replicas}),
        partitions=sorted({TopicPartition(each.topic, each.partition) for each in replicas}),
    )


def _paths(
    described: Mapping[int, Mapping[str, LogDirDescription]], *, is_future: bool
) -> dict[TopicPartitionReplica, str]:
    return {
        TopicPartitionReplica(*partition, broker): path
        for broker, log_dirs in described.items()
        for path, log_dir in log_dirs.items()
        for partition, info in log_dir.replicas.items()
        if info.is_future == is_future
    }


async def start_log_dir_moves(
    cluster: Cluster,
    targets: Mapping[TopicPartitionReplica, str],
    report: Callable[[str], object],
) -> None:
    """Start the moves, and pass a line for each one that has started to `report`.

    A replica that is being moved to the broker does not exist there yet, so the client repeats the
    request until ``default.api.timeout.ms``. Raises KafkaError if a move could not be started.
    """
    started = await LogDirAdmin(cluster).alter_replica_log_dirs(targets)
    for replica in sorted(started.values_by_key):
        topic, partition, broker = replica
        report(
            f"Successfully started moving log directory to {targets[replica]} for replica"
            f" {topic}-{partition} with broker {broker} "
        )
    late = []
    for replica, error in started.errors.items():
        if error.code != ErrorCode.REPLICA_NOT_AVAILABLE:
            raise type(error)(f"Failed to alter dir for {_text(replica)}: {error.message}")
        late.append(_text(replica))
    if late:
        plural = "" if len(late) == 1 else "s"
        raise KafkaError(
            f"Timed out before log directory move{plural} could be started for:"
            f" {','.join(sorted(late))}"
        )


def _text(replica: TopicPartitionReplica) -> str:
    return "-".join(map(str, replica))
