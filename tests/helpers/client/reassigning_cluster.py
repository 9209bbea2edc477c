"""A client's `Cluster` whose controller moves replicas and elects leaders, in virtual time.

    cluster = ReassigningCluster(brokers={1: None, 2: None, 3: None})
    cluster.add_topic("orders", [1, 2], [2, 1])
    cluster.kill(2)

The double follows Kafka's controller in what the tools depend on: a move ends when all target
replicas have copied the partition, at `bytes_per_s`; the leader changes only if its replica is
removed, or by an election. In `on_sleep`, a test can stop brokers or cancel moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plog.enums import AlterOperation, ConfigResourceType
from plog.errors import ErrorCode
from plog.types import TopicPartition
from plog.wire.messages.alter_configs import AlterConfigsResourceResponse
from plog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from plog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from plog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from plog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from plog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from plog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from plog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from plog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from plog.wire.schema import ApiMessage
from tests.helpers.client.fake_cluster import FakeCluster

LOG_DIR, OTHER_LOG_DIR = "/data/a", "/data/b"
_MIN_ISR = "min.insync.replicas"


@dataclass(slots=True, kw_only=True)
class Moving:
    """A reassignment in progress."""

    original: tuple[int, ...]
    target: tuple[int, ...]
    copied: float = 0.0
    """The bytes that each new replica has."""

    @property
    def adding(self) -> list[int]:
        return [one for one in self.target if one not in self.original]

    @property
    def removing(self) -> list[int]:
        return [one for one in self.original if one not in self.target]


@dataclass(slots=True, kw_only=True)
class Part:
    """A partition."""

    replicas: tuple[int, ...]
    isr: list[int]
    leader: int
    size: int
    moving: Moving | None = None
    log_dirs: dict[int, str] = field(default_factory=dict)
    future_dirs: dict[int, str] = field(default_factory=dict)


class ReassigningCluster(FakeCluster):
    """The cluster; `configs` contains all settings that a client has set, by kind and name."""

    def __init__(self, brokers: Mapping[int, str | None], *, bytes_per_s: float = 100.0) -> None:
        super().__init__(brokers=brokers)
        self.racks = dict(brokers)
        self.parts: dict[TopicPartition, Part] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.min_isr: dict[str, int] = {}
        self.bytes_per_s = bytes_per_s
        self.answer = lambda node_id, request: self._handlers[type(request)](node_id, request)
        self.refuses: dict[TopicPartition, ErrorCode] = {}
        """Errors for reassignments of partitions."""
        self.on_sleep: Callable[[float], object] = lambda now_s: None
        """Called whenever the client has slept, with the time in seconds."""
        self.network.sleep = self._sleep  # type: ignore[method-assign]
        self._handlers: dict[type[ApiMessage], Callable[[int, Any], ApiMessage]] = {
            DescribeClusterRequest: self._describe_cluster,
            DescribeTopicPartitionsRequest: self._describe_topics,
            DescribeLogDirsRequest: self._describe_log_dirs,
            DescribeConfigsRequest: self._describe_configs,
            IncrementalAlterConfigsRequest: self._alter_configs,
            AlterPartitionReassignmentsRequest: self._reassign,
            ListPartitionReassignmentsRequest: self._list_reassignments,
            ElectLeadersRequest: self._elect,
            AlterReplicaLogDirsRequest: self._alter_log_dirs,
        }

    # -- what tests do ------------------------------------------------------------------------

    def add_topic(self, name: str, *replicas: Sequence[int], size: int = 100) -> None:
        """Add a topic with the replicas of its partitions, all in sync."""
        for number, some in enumerate(replicas):
            self.parts[TopicPartition(name, number)] = Part(
                replicas=tuple(some), isr=list(some), leader=some[0], size=size
            )

    def kill(self, broker: int) -> None:
        """Stop a broker; other replicas in sync lead its partitions."""
        del self.racks[broker]
        self.brokers = self.racks
        for part in self.parts.values():
            if broker in part.isr and part.isr != [broker]:
                part.isr.remove(broker)
            if part.leader == broker:
                part.leader = part.isr[0] if part.isr != [broker] else -1

    def sent(self, kind: type[ApiMessage]) -> list[Any]:
        """Return the requests of a kind."""
        return [request for _, request in self.asked if isinstance(request, kind)]

    @property
    def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {partition: part.replicas for partition, part in self.parts.items()}

    @property
    def leaders_now(self) -> dict[TopicPartition, int]:
        return {partition: part.leader for partition, part in self.parts.items()}

    # -- time ---------------------------------------------------------------------------------

    async def _sleep(self, seconds: float) -> None:
        self.network.time_s += seconds
        self.copy(seconds * self.bytes_per_s)
        self.on_sleep(self.network.time_s)

    def copy(self, size_bytes: float) -> None:
        """Copy `size_bytes` to each replica that is being added to an available broker."""
        for part in self.parts.values():
            moving = part.moving
            if moving is not None and set(moving.adding) <= self.racks.keys():
                moving.copied += size_bytes
                self._finish(part)

    def _finish(self, part: Part) -> None:
        moving = part.moving
        assert moving is not None
        if moving.adding and moving.copied < part.size:
            return
        part.replicas, part.moving = moving.target, None
        kept = [one for one in part.isr if one in part.replicas]
        part.isr = [*kept, *(one for one in moving.adding if one not in kept)]
        if part.leader not in part.replicas:
            part.leader = part.isr[0]

    # -- requests -----------------------------------------------------------------------------

    def _describe_cluster(self, node_id: int, request: Any) -> DescribeClusterResponse:
        return DescribeClusterResponse(
            cluster_id="double",
            controller_id=min(self.racks),
            brokers=[
                DescribeClusterBroker(broker_id=one, host=f"b{one}", port=9092, rack=rack)
                for one, rack in self.racks.items()
            ],
        )

    def _describe_topics(
        self, node_id: int, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        known = sorted({partition.topic for partition in self.parts})
        names = [topic.name for topic in request.topics] or known
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(
                    name=name,
                    error_code=0 if name in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    topic_id=bytes(16),
                    partitions=[
                        self._described(partition, part)
                        for partition, part in sorted(self.parts.items())
                        if partition.topic == name
                    ],
                )
                for name in names
            ]
        )

    def _described(
        self, partition: TopicPartition, part: Part
    ) -> DescribeTopicPartitionsResponsePartition:
        moving = part.moving
        # The targets come first, as in Kafka.
        replicas = [*moving.target, *moving.removing] if moving else list(part.replicas)
        return DescribeTopicPartitionsResponsePartition(
            partition_index=partition.partition,
            leader_id=part.leader,
            replica_nodes=replicas,
            isr_nodes=list(part.isr),
            offline_replicas=[one for one in replicas if one not in self.racks],
        )

    def _describe_log_dirs(
        self, node_id: int, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        wanted = None
        if request.topics is not None:
            wanted = {(x.topic, number) for x in request.topics for number in x.partitions}
        results = []
        for path in (LOG_DIR, OTHER_LOG_DIR):
            topics: dict[str, list[DescribeLogDirsPartition]] = {}
            for partition, part in self.parts.items():
                if wanted is not None and partition not in wanted:
                    continue
                topics.setdefault(partition.topic, []).extend(
                    self._logs(node_id, path, partition, part)
                )
            results.append(
                DescribeLogDirsResult(
                    log_dir=path,
                    topics=[DescribeLogDirsTopic(name=x, partitions=y) for x, y in topics.items()],
                )
            )
        return DescribeLogDirsResponse(results=results)

    def _logs(
        self, broker: int, path: str, partition: TopicPartition, part: Part
    ) -> Iterable[DescribeLogDirsPartition]:
        number = partition.partition
        size = part.size
        moving = part.moving
        if moving and broker in moving.adding:
            size = int(moving.copied)
        elif broker not in part.replicas:
            return
        if part.log_dirs.get(broker, LOG_DIR) == path:
            yield DescribeLogDirsPartition(partition_index=number, partition_size=size)
        if part.future_dirs.get(broker) == path:
            yield DescribeLogDirsPartition(
                partition_index=number, partition_size=0, is_future_key=True
            )

    def _describe_configs(
        self, node_id: int, request: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        results = []
        for resource in request.resources:
            known = dict(self.configs.get((resource.resource_type, resource.resource_name), {}))
            if resource.resource_type == ConfigResourceType.TOPIC:
                known.setdefault(_MIN_ISR, str(self.min_isr.get(resource.resource_name, 1)))
                known.setdefault("leader.replication.throttled.replicas", "")
            keys = resource.configuration_keys
            results.append(
                DescribeConfigsResult(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[
                        DescribeConfigsResourceResult(name=name, value=value)
                        for name, value in known.items()
                        if keys is None or name in keys
                    ],
                )
            )
        return DescribeConfigsResponse(results=results)

    def _alter_configs(
        self, node_id: int, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            values = self.configs.setdefault(key, {})
            for change in resource.configs:
                if change.config_operation == AlterOperation.DELETE:
                    values.pop(change.name, None)
                else:
                    values[change.name] = change.value or ""
            if not values:
                del self.configs[key]
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    resource_type=each.resource_type, resource_name=each.resource_name
                )
                for each in request.resources
            ]
        )

    def _reassign(
        self, node_id: int, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        return AlterPartitionReassignmentsResponse(
            responses=[
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=each.partition_index,
                            error_code=self._reassign_one(
                                TopicPartition(topic.name, each.partition_index),
                                each.replicas,
                                same_factor=not request.allow_replication_factor_change,
                            ),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _reassign_one(
        self, partition: TopicPartition, target: Sequence[int] | None, *, same_factor: bool
    ) -> int:
        part = self.parts.get(partition)
        if part is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition in self.refuses:
            return self.refuses[partition]
        if target is None:
            if part.moving is None:
                return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            part.moving = None
            return 0
        if not set(target) <= self.racks.keys() | set(part.replicas):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if same_factor and len(target) != len(part.replicas):
            return ErrorCode.INVALID_REPLICATION_FACTOR
        part.moving = Moving(original=part.replicas, target=tuple(target))
        if not part.moving.adding:
            self._finish(part)
        return 0

    def _list_reassignments(
        self, node_id: int, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        wanted = None
        if request.topics is not None:
            wanted = {(x.name, number) for x in request.topics for number in x.partition_indexes}
        return ListPartitionReassignmentsResponse(
            topics=[
                OngoingTopicReassignment(
                    name=partition.topic,
                    partitions=[
                        OngoingPartitionReassignment(
                            partition_index=partition.partition,
                            replicas=[*part.moving.target, *part.moving.removing],
                            adding_replicas=part.moving.adding,
                            removing_replicas=part.moving.removing,
                        )
                    ],
                )
                for partition, part in sorted(self.parts.items())
                if part.moving is not None and (wanted is None or partition in wanted)
            ]
        )

    def _elect(self, node_id: int, request: ElectLeadersRequest) -> ElectLeadersResponse:
        if request.topic_partitions is None:
            wanted = sorted(
                one for one, part in self.parts.items() if part.leader != part.replicas[0]
            )
        else:
            wanted = [
                TopicPartition(topic.topic, number)
                for topic in request.topic_partitions
                for number in topic.partitions
            ]
        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(
                    topic=partition.topic,
                    partition_result=[
                        PartitionResult(
                            partition_id=partition.partition,
                            error_code=self._elect_one(partition),
                        )
                    ],
                )
                for partition in wanted
            ]
        )

    def _elect_one(self, partition: TopicPartition) -> int:
        part = self.parts.get(partition)
        if part is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        preferred = part.replicas[0]
        if part.leader == preferred:
            return ErrorCode.ELECTION_NOT_NEEDED
        if preferred not in part.isr or preferred not in self.racks:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        part.leader = preferred
        return 0

    def _alter_log_dirs(
        self, node_id: int, request: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse:
        results = []
        for log_dir in request.dirs:
            for topic in log_dir.topics:
                codes = [
                    AlterReplicaLogDirPartitionResult(
                        partition_index=number,
                        error_code=self._alter_log_dir(
                            node_id, TopicPartition(topic.name, number), log_dir.path
                        ),
                    )
                    for number in topic.partitions
                ]
                results.append(
                    AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=codes)
                )
        return AlterReplicaLogDirsResponse(results=results)

    def _alter_log_dir(self, broker: int, partition: TopicPartition, path: str) -> int:
        part = self.parts[partition]
        if path not in (LOG_DIR, OTHER_LOG_DIR):
            return ErrorCode.LOG_DIR_NOT_FOUND
        if broker not in part.replicas:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        if part.log_dirs.get(broker, LOG_DIR) == path:
            part.future_dirs.pop(broker, None)
        else:
            part.future_dirs[broker] = path
        return 0
