"""The cluster as a client last heard of it: brokers, topics, who leads which partition.

An immutable snapshot; `Cluster` replaces it. Made from any version of the Metadata response.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from plog.client.errors import error_about
from plog.errors import ErrorCode, InvalidTopicException, KafkaError, RequestTimedOut
from plog.types import ZERO_UUID, TopicPartition, Uuid
from plog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_NODE = -1
_LONGEST_NAME = 249


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker, and where this client reaches it."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """Host and port, for people."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """A partition: its `leader` is -1 while there is none, its epoch -1 where it is not told."""

    index: int
    leader: int = NO_NODE
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic, or in `error` why there is none; `partitions` stand in the order of their index."""

    name: str
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionMetadata, ...] = ()

    @property
    def has_leaders(self) -> bool:
        """Whether each of its partitions can be written to and read from."""
        return bool(self.partitions) and all(p.leader != NO_NODE for p in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """All that was told last. `topics` holds those that were asked for, whatever became of them."""

    cluster_id: str | None = None
    controller_id: int = NO_NODE
    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicMetadata] = field(default_factory=lambda: MappingProxyType({}))
    answered: frozenset[str] = frozenset()
    """The topics that the last response was about; the others are as they were known before."""

    def __str__(self) -> str:
        brokers = ", ".join(f"{x.id} at {x.host}:{x.port}" for x in self.brokers.values())
        topics = ", ".join(
            f"{name} ({topic.error.name if topic.error else len(topic.partitions)})"
            for name, topic in self.topics.items()
        )
        return f"cluster {self.cluster_id}: brokers {brokers}; topics {topics}"

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        """What is known of a partition; None if it is not known to exist."""
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def leader_of(self, partition: TopicPartition) -> int | None:
        """The node that leads a partition; None if there is none, or none is known.

        One that is no broker (any more) leads nothing: news of the two may come apart.
        """
        known = self.partition(partition)
        return None if known is None or known.leader not in self.brokers else known.leader

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None if it is not known to exist."""
        known = self.topics.get(topic)
        return len(known.partitions) if known is not None and known.partitions else None

    def without_errors(self, names: Iterable[str]) -> ClusterMetadata:
        """This without those of `names` that have an error, so that they are asked about again."""
        failed = {name for name in names if name in self.topics and self.topics[name].error}
        if not failed:
            return self
        kept = {name: topic for name, topic in self.topics.items() if name not in failed}
        return replace(self, topics=kept)

    def updated(self, response: MetadataResponse, *, replace_topics: bool) -> ClusterMetadata:
        """This with what `response` tells; `replace_topics` forgets the topics it does not name.

        A leader of an older epoch than the one known is not taken over: the broker that told it
        has not heard yet (KIP-320).
        """
        topics = {} if replace_topics else dict(self.topics)
        for told in response.topics:
            if told.name is not None:
                topics[told.name] = _topic(told, self.topics.get(told.name))
        return ClusterMetadata(
            cluster_id=response.cluster_id or self.cluster_id,
            controller_id=response.controller_id,
            brokers={
                broker.node_id: Broker(
                    id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in response.brokers
            }
            or self.brokers,  # One that has just begun may know of none, not even of itself.
            topics=topics,
            answered=frozenset(told.name for told in response.topics if told.name is not None),
        )


def may_be_topic(name: object) -> bool:
    """Whether a broker can be asked about a topic of this name."""
    try:
        return isinstance(name, str) and 0 < len(name.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


def check_topic_names(names: Iterable[str]) -> None:
    """Raise InvalidTopicException for what no broker could even be asked about."""
    for name in names:
        if not may_be_topic(name):
            raise InvalidTopicException(
                f"{ascii(name)[:80]} is no name of a topic: those have up to {_LONGEST_NAME}"
                " letters, digits, dots, underscores and hyphens"
            )


def _topic(told: MetadataResponseTopic, known: TopicMetadata | None) -> TopicMetadata:
    assert told.name is not None
    same = known is not None and known.topic_id == told.topic_id
    before = {p.index: p for p in known.partitions} if known is not None and same else {}
    partitions = []
    for partition in sorted(told.partitions, key=lambda partition: partition.partition_index):
        old = before.get(partition.partition_index)
        if old is not None and 0 <= partition.leader_epoch < old.leader_epoch:
            partitions.append(old)
            continue
        partitions.append(
            PartitionMetadata(
                index=partition.partition_index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(partition.replica_nodes),
                isr=tuple(partition.isr_nodes),
                offline=tuple(partition.offline_replicas),
                error=_error(partition.error_code),
            )
        )
    return TopicMetadata(
        name=told.name,
        topic_id=told.topic_id,
        is_internal=told.is_internal,
        error=_error(told.error_code),
        partitions=tuple(partitions),
    )


def _error(code: int) -> ErrorCode:
    """A code of a broker that is newer than this client is some error of the server."""
    known = code in ErrorCode.__members__.values()
    return ErrorCode(code) if known else ErrorCode.UNKNOWN_SERVER_ERROR


def problem_of(name: str, topic: TopicMetadata | None) -> KafkaError | None:
    """Why a topic cannot be used; None if it can."""
    if topic is None:
        return RequestTimedOut(f"nobody has told of topic {name}")
    if topic.error:
        return error_about(topic.error, f"topic {name}")
    if not topic.has_leaders:
        return error_about(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}")
    return None
