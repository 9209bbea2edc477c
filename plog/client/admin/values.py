"""The immutable values that the admin client accepts and returns.

Small families (ACLs, quotas, SCRAM, features) define their values in their own modules. Topic ids
are `plog.types.Uuid`. A value that the broker does not provide is None.
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

# In a response without operations, the field contains the smallest 32-bit integer (KIP-430).
_NO_OPERATIONS = -(1 << 31)


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """Return the operations in KIP-430's bit field, or None if the response has no operations.

    >>> sorted(x.name for x in operations_of(0b1_0000_1000) or ())
    ['DESCRIBE', 'READ']
    """
    if bits == _NO_OPERATIONS:
        return None
    # An operation's code is the index of its bit.
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)


# -- topics -----------------------------------------------------------------------------------


def topic_id_of(topic_id: Uuid) -> Uuid | None:
    """Return a topic's id, or None if the broker is too old to send ids."""
    return None if topic_id == ZERO_UUID else topic_id


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. A count of None means the broker's default.

    Instead of counts, `assignments` can list each partition's brokers, preferred leader first.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that was created or, with `validate_only`, would be created.

    Brokers before Kafka 2.4 return only the name.
    """

    name: str
    topic_id: Uuid | None
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, ConfigEntry] | None = field(repr=False)
    """The topic's configs; also None if the client is not authorized to read them."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic's new total number of partitions, with optional brokers for each new partition."""

    total: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """A topic in a listing."""

    name: str
    topic_id: Uuid | None
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition with its leader, or None, and its replicas. All of them are broker ids."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    eligible_leaders: tuple[int, ...] | None = None
    """Replicas that are not in sync but can become leader without data loss (KIP-966)."""
    last_known_eligible_leaders: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic with its partitions, sorted by index."""

    name: str
    topic_id: Uuid | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition, or 0 if the topic has no partitions."""
        # Kafka's tools show the same number.
        return len(self.partitions[0].replicas) if self.partitions else 0


# -- configs ----------------------------------------------------------------------------------


class ConfigResource(NamedTuple):
    """A resource with configs. BROKER with an empty name means the defaults for all brokers.

    >>> ConfigResource.topic("page-views").name
    'page-views'
    """

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        """Return the resource for a topic's configs."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> Self:
        """Return the resource for a broker's configs or, by default, the defaults for all."""
        return cls(ConfigResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def broker_logger(cls, node_id: int) -> Self:
        """Return the resource for a broker's logger levels."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(node_id))

    @classmethod
    def group(cls, name: str) -> Self:
        """Return the resource for a group's configs."""
        return cls(ConfigResourceType.GROUP, name)

    @property
    def node_id(self) -> int | None:
        """The broker that serves this resource, or None if any broker does."""
        of_one = self.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        # The defaults for all brokers have an empty name, and any broker returns them (KIP-226).
        return int(self.name) if of_one and self.name.isdecimal() else None

    def __str__(self) -> str:
        return f"{self.type.name} {self.name or '<default>'}"


class ConfigType(WireEnum):
    """The type of a config value."""

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
    """One source of a config's value; it applies only if the preceding synonyms are not set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A config of a resource. Brokers never return the value of a sensitive config."""

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
        """Whether the value is the default."""
        return self.source == ConfigSource.DEFAULT_CONFIG


class AlterConfig(NamedTuple):
    """A change to a config. DELETE takes no value and restores the default.

    >>> AlterConfig("retention.ms", "60000").operation.name
    'SET'
    """

    name: str
    value: ConfigValue | None = None
    operation: AlterOperation = AlterOperation.SET


# -- offsets ----------------------------------------------------------------------------------


class OffsetSpec(IntEnum):
    """Special values for `list_offsets`, used in place of a timestamp."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    """The offset of the record with the largest timestamp."""
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """The offset found for a timestamp; offset and timestamp are -1 if there is no such record."""

    offset: int
    timestamp: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """An idempotent producer's state in a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


# -- the cluster ------------------------------------------------------------------------------


class VersionRange(NamedTuple):
    """A range of versions or levels, both ends inclusive."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """A broker with its address. A fenced broker does not serve clients."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id: {self.id} rack: {self.rack})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """A cluster and its brokers by id."""

    cluster_id: str
    controller_id: int | None
    brokers: Mapping[int, BrokerDescription]
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def controller(self) -> BrokerDescription | None:
        """The controller or, in a KRaft cluster, a broker that forwards requests to it."""
        return None if self.controller_id is None else self.brokers.get(self.controller_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """A replica in a log directory; a future replica replaces the current replica after a move."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A log directory with its error or its replicas. Byte counts refer to its file system."""

    path: str
    error: KafkaError | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool = False


class TopicPartitionReplica(NamedTuple):
    """A replica: a partition on a broker."""

    topic: str
    partition: int
    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition reassignment in progress."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


# -- groups -----------------------------------------------------------------------------------


class GroupState(StrEnum):
    """A group's state; the values are Kafka's names."""

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
        """Return the member for a name in any case, or UNKNOWN for any other value."""
        # Users may write filters in lower case, and newer brokers may have more states.
        return next((x for x in cls if x.lower() == str(value).lower()), cls.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in a listing. Kafka 2.6 added `state`, and 3.8 added `type`."""

    group_id: str
    protocol_type: str
    state: GroupState | None
    type: str | None

    @property
    def is_simple(self) -> bool:
        """Whether the group has no protocol and only stores offsets."""
        return not self.protocol_type


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A group member with its topics and partitions, both decoded and as the raw bytes received.

    The epoch, the target assignment and the pattern exist only in KIP-848's protocol.
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
    """A group with its members. For consumers, `protocol` is the name of the common assignor."""

    group_id: str
    type: str
    """The type as in `list_groups`: "classic", or "consumer" for KIP-848's protocol.

    Only groups that use KIP-848's protocol have epochs.
    """
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]
    coordinator: BrokerDescription
    epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: frozenset[AclOperation] | None = None


class MemberToRemove(NamedTuple):
    """A member to remove, identified by instance id if it is static, otherwise by member id."""

    member_id: str = ""
    group_instance_id: str | None = None
