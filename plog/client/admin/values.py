"""What the admin client gives back and is given: frozen values, one for each noun.

What belongs to one small family only (ACLs, quotas, SCRAM, features) is in that family's file. Ids
are `plog.types.Uuid`; what a broker does not tell is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple, Self

from plog.client.admin.argument_checks import ConfigValue
from plog.enums import AclOperation, AlterOperation, ConfigResourceType, ConfigSource, WireEnum
from plog.errors import KafkaError
from plog.types import ZERO_UUID, TopicPartition, Uuid

_NO_OPERATIONS = -(1 << 31)


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """What a client may do, of the bits of KIP-430; None if it was not asked for or is not told.

    >>> sorted(x.name for x in operations_of(0b1_0000_1000) or ())
    ['DESCRIBE', 'READ']
    """
    if bits == _NO_OPERATIONS:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)


# -- topics -----------------------------------------------------------------------------------


def topic_id_of(told: Uuid) -> Uuid | None:
    """The id of a topic; None if a broker is too old to tell it."""
    return None if told == ZERO_UUID else told


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; counts of None leave the choice to the broker's settings.

    `assignments` are the brokers of each partition, the preferred leader first, instead of counts.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic as it was created, or would be. Before Kafka 2.4 nothing is told but the name."""

    name: str
    topic_id: Uuid | None
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, ConfigEntry] | None = field(repr=False)
    """None also if this client may not see them."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic is to have in all; `assignments`: the brokers of new ones."""

    total: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """A topic there is."""

    name: str
    topic_id: Uuid | None
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition: `leader` is None while there is none. Replicas are broker numbers."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    eligible_leaders: tuple[int, ...] | None = None
    """Who could lead although it is not in sync (KIP-966)."""
    last_known_eligible_leaders: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic with its partitions, in the order of their numbers."""

    name: str
    topic_id: Uuid | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def replication_factor(self) -> int:
        """Of the first partition, as tools show it; 0 without partitions."""
        return len(self.partitions[0].replicas) if self.partitions else 0


# -- settings ---------------------------------------------------------------------------------


class ConfigResource(NamedTuple):
    """Something that has settings. A BROKER without a name stands for the default of all brokers.

    >>> ConfigResource.topic("page-views").name
    'page-views'
    """

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        """A topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> Self:
        """A broker, or what all of them have by default."""
        return cls(ConfigResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def broker_logger(cls, node_id: int) -> Self:
        """The levels of a broker's loggers."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(node_id))

    @classmethod
    def group(cls, name: str) -> Self:
        """A group."""
        return cls(ConfigResourceType.GROUP, name)

    @property
    def node_id(self) -> int | None:
        """The one broker that knows of this resource; None if any does."""
        of_one = self.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        return int(self.name) if of_one and self.name.isdecimal() else None

    def __str__(self) -> str:
        return f"{self.type.name} {self.name or '<default>'}"


class ConfigType(WireEnum):
    """What a value is."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A setting that gives the value, or would if those before it were not set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A setting. The value of a sensitive one is never told."""

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN
    is_sensitive: bool = False
    is_read_only: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it."""
        return self.source == ConfigSource.DEFAULT_CONFIG


class AlterConfig(NamedTuple):
    """One change of a setting. DELETE takes no value: the default counts again.

    >>> AlterConfig("retention.ms", "60000").operation.name
    'SET'
    """

    name: str
    value: ConfigValue | None = None
    operation: AlterOperation = AlterOperation.SET


# -- offsets ----------------------------------------------------------------------------------


class OffsetSpec(IntEnum):
    """Times that are none; every other one is in milliseconds since 1970."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    """The record with the largest timestamp."""
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """The offset that belongs to a time; offset and timestamp are -1 where there is none."""

    offset: int
    timestamp: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """An idempotent producer, as the leader of a partition remembers it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


# -- the cluster ------------------------------------------------------------------------------


class VersionRange(NamedTuple):
    """Versions or levels, both ends included."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """A broker; a fenced one takes part in nothing."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id: {self.id} rack: {self.rack})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster and its brokers, by number."""

    cluster_id: str
    controller_id: int | None
    brokers: Mapping[int, BrokerDescription]
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def controller(self) -> BrokerDescription | None:
        """The broker that controls, or that hands on to who does."""
        return None if self.controller_id is None else self.brokers.get(self.controller_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """A log of a partition in some directory; a future one is to replace the current."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A log directory: what is wrong with it, or what it holds. Bytes are of its file system."""

    path: str
    error: KafkaError | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool = False


class TopicPartitionReplica(NamedTuple):
    """A broker's copy of a partition."""

    topic: str
    partition: int
    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition on its way to other brokers."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


# -- groups -----------------------------------------------------------------------------------


class GroupState(StrEnum):
    """What a group is doing, in Kafka's words."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"

    @classmethod
    def _missing_(cls, value: object) -> GroupState:
        """In any case of letters; what is no state, or one of a newer Kafka, is UNKNOWN."""
        return next((x for x in cls if x.lower() == str(value).lower()), cls.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group there is; its state is None before Kafka 2.6, its type before 3.8."""

    group_id: str
    protocol_type: str
    state: GroupState | None
    type: str | None

    @property
    def is_simple(self) -> bool:
        """Whether it has no members and only keeps offsets for somebody."""
        return not self.protocol_type


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member; what it consumes is decoded, the raw bytes are what members of its kind sent.

    The epoch, the target and the pattern are told in the protocol of KIP-848 only.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    subscription: frozenset[str]
    assignment: frozenset[TopicPartition]
    raw_metadata: bytes = b""
    raw_assignment: bytes = b""
    subscription_pattern: str | None = None
    target_assignment: frozenset[TopicPartition] | None = None
    epoch: int | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group; `protocol` is what its members agreed on, an assignor's name if they consume."""

    group_id: str
    type: str
    """As in `list_groups`: classic, or consumer for KIP-848's, which alone have epochs."""
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]
    coordinator: BrokerDescription
    epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: frozenset[AclOperation] | None = None


class MemberToRemove(NamedTuple):
    """A member, by its instance id if it is a static one, else by its member id."""

    member_id: str = ""
    group_instance_id: str | None = None
