"""A snapshot of the cluster's metadata: brokers, topics and partition leaders.

A snapshot is immutable; `Cluster` replaces it after each Metadata response.
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
# Kafka's limit for topic names: a partition's directory name, with its suffix, must not exceed the
# file system's limit of 255 characters.
_LONGEST_NAME = 249


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker, with the address that this client uses."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """The host and port, for error messages."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """A partition. `leader` is -1 if there is no leader; `leader_epoch` is -1 if it is unknown."""

    index: int
    leader: int = NO_NODE
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic. `error` is the reason why the topic is unusable; partitions are sorted by index."""

    name: str
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionMetadata, ...] = ()

    @property
    def has_leaders(self) -> bool:
        """Whether every partition of the topic has a leader."""
        return bool(self.partitions) and all(p.leader != NO_NODE for p in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """The newest metadata. `topics` contains all requested topics, including topics with errors."""

    cluster_id: str | None = None
    controller_id: int = NO_NODE
    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicMetadata] = field(default_factory=lambda: MappingProxyType({}))
    answered: frozenset[str] = frozenset()
    """The topics in the last response; all other topics are from earlier responses."""

    def __str__(self) -> str:
        brokers = ", ".join(f"{x.id} at {x.host}:{x.port}" for x in self.brokers.values())
        topics = ", ".join(
            f"{name} ({topic.error.name if topic.error else len(topic.partitions)})"
            for name, topic in self.topics.items()
        )
        return f"cluster {self.cluster_id}: brokers {brokers}; topics {topics}"

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        """Return a partition's metadata, or None if the partition is unknown."""
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the id of the partition's leader, or None if no leader is known."""
        # Brokers and partitions may be from different responses. A leader that is not among the
        # brokers has no address, so treat it as unknown.
        known = self.partition(partition)
        return None if known is None or known.leader not in self.brokers else known.leader

    def partition_count(self, topic: str) -> int | None:
        """Return a topic's number of partitions, or None if the topic is unknown."""
        known = self.topics.get(topic)
        return len(known.partitions) if known is not None and known.partitions else None

    def without_errors(self, names: Iterable[str]) -> ClusterMetadata:
        """Return a copy without those topics in `names` that have an error."""
        failed = {name for name in names if name in self.topics and self.topics[name].error}
        if not failed:
            return self
        kept = {name: topic for name, topic in self.topics.items() if name not in failed}
        return replace(self, topics=kept)

    def updated(self, response: MetadataResponse, *, replace_topics: bool) -> ClusterMetadata:
        """Return a copy updated from `response`; `replace_topics` drops all other topics."""
        topics = {} if replace_topics else dict(self.topics)
        for topic in response.topics:
            # If a topic that was requested by id does not exist, the response has no name for it.
            if topic.name is not None:
                topics[topic.name] = _topic(topic, self.topics.get(topic.name))
        return ClusterMetadata(
            cluster_id=response.cluster_id or self.cluster_id,
            controller_id=response.controller_id,
            brokers={
                broker.node_id: Broker(
                    id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in response.brokers
            }
            or self.brokers,  # A broker that is starting may not list any brokers, not even itself.
            topics=topics,
            answered=frozenset(topic.name for topic in response.topics if topic.name is not None),
        )


def may_be_topic(name: object) -> bool:
    """Return whether `name` is a valid topic name."""
    # Brokers check the characters; the client only rejects names that it cannot encode.
    try:
        return isinstance(name, str) and 0 < len(name.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


def check_topic_names(names: Iterable[str]) -> None:
    """Raise InvalidTopicException for a name that is not a valid topic name."""
    for name in names:
        if not may_be_topic(name):
            raise InvalidTopicException(
                f"invalid topic name {ascii(name)[:80]}: use up to {_LONGEST_NAME}"
                " letters, digits, dots, underscores and hyphens"
            )


def _topic(received: MetadataResponseTopic, known: TopicMetadata | None) -> TopicMetadata:
    assert received.name is not None
    # KIP-516: a recreated topic starts at epoch 0 again, so do not compare its epochs with those of
    # the deleted topic.
    same = known is not None and known.topic_id == received.topic_id
    before = {p.index: p for p in known.partitions} if known is not None and same else {}
    partitions = []
    for partition in sorted(received.partitions, key=lambda partition: partition.partition_index):
        old = before.get(partition.partition_index)
        # KIP-320: a lower epoch means that the responding broker's metadata is out of date.
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
        name=received.name,
        topic_id=received.topic_id,
        is_internal=received.is_internal,
        error=_error(received.error_code),
        partitions=tuple(partitions),
    )


def _error(code: int) -> ErrorCode:
    """Return the error for a code, or UNKNOWN_SERVER_ERROR for an unknown code."""
    known = code in ErrorCode.__members__.values()
    return ErrorCode(code) if known else ErrorCode.UNKNOWN_SERVER_ERROR


def problem_of(name: str, topic: TopicMetadata | None) -> KafkaError | None:
    """Return the error that makes a topic unusable, or None if the topic is usable."""
    if topic is None:
        return RequestTimedOut(f"no metadata for topic {name}")
    if topic.error:
        return error_about(topic.error, f"topic {name}")
    if not topic.has_leaders:
        return error_about(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}")
    return None
