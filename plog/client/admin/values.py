"""The frozen values that the admin client accepts and returns, one class for each noun.

The values of small families (ACLs, quotas, SCRAM, features) are in the files of those families. Ids
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

# The smallest 32-bit integer marks a response without operations (KIP-430).
_NO_OPERATIONS = -(1 << 31)


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """Return the operations in the bit field of KIP-430; None if the response has none.

    >>> sorted(x.name for x in operations_of(0b1_0000_1000) or ())
    ['DESCRIBE', 'READ']
    """
    if bits == _NO_OPERATIONS:
        return None
    # The codes of operations are the numbers of their bits.
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)


# -- topics -----------------------------------------------------------------------------------


def topic_id_of(topic_id: Uuid) -> Uuid | None:
    """Return the id of a topic; None if the broker is too old to send it."""
    return None if topic_id == ZERO_UUID else topic_id


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; for counts of None, the broker uses its defaults.

    Instead of counts, `assignments` lists the brokers of each partition, preferred leader first.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic as it was created or, with `validate_only`, would be created.

    Before Kafka 2.4, only the name is set.
    """

    name: str
    topic_id: Uuid | None
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, ConfigEntry] | None = field(repr=False)
    """Also None if the client is not authorized to read the configs."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new total number of partitions; `assignments` lists the brokers of the new ones."""

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
    """A partition; `leader` is None while it has no leader. Replicas are broker ids."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    eligible_leaders: tuple[int, ...] | None = None
    """The eligible leader replicas: not in sync, but able to lead (KIP-966)."""
    last_known_eligible_leaders: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic with its partitions in index order."""

    name: str
    topic_id: Uuid | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition, as tools show it; 0 without partitions."""
        return len(self.partitions[0].replicas) if self.partitions else 0


# -- configs ----------------------------------------------------------------------------------


class ConfigResource(NamedTuple):
    """A resource with configs. A BROKER without a name is the default of all brokers.

    >>> ConfigResource.topic("page-views").name
    'page-views'
    """

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        """Return the resource of a topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> Self:
        """Return the resource of a broker, or of the default for all brokers."""
        return cls(ConfigResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def broker_logger(cls, node_id: int) -> Self:
        """Return the resource of a broker's logger levels."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(node_id))

    @classmethod
    def group(cls, name: str) -> Self:
        """Return the resource of a group."""
        return cls(ConfigResourceType.GROUP, name)

    @property
    def node_id(self) -> int | None:
        """The broker that serves this resource; None if any broker does."""
        of_one = self.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        # Defaults for all brokers have an empty name, and any broker returns them (KIP-226).
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
    """A config that provides the value, or would provide it if preceding synonyms were not set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A config of a resource. Brokers never return the value of a sensitive one."""

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
    """A change of a config. DELETE takes no value and restores the default.

    >>> AlterConfig("retention.ms", "60000").operation.name
    'SET'
    """

    name: str
    value: ConfigValue | None = None
    operation: AlterOperation = AlterOperation.SET


# -- offsets ----------------------------------------------------------------------------------


class OffsetSpec(IntEnum):
    """Special values in place of a time, which is otherwise in milliseconds since 1970."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    """The offset of the record with the largest timestamp."""
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """The offset found for a time; offset and timestamp are -1 if none was found."""

    offset: int
    timestamp: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """The state of an idempotent producer in a partition."""

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
    """A broker; a fenced broker serves no clients."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id: {self.id} rack: {self.rack})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster and its brokers, by broker id."""

    cluster_id: str
    controller_id: int | None
    brokers: Mapping[int, BrokerDescription]
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def controller(self) -> BrokerDescription | None:
        """The controller or, in KRaft, a broker that forwards requests to the controller."""
        return None if self.controller_id is None else self.brokers.get(self.controller_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """A replica in a log directory; a future replica will replace the current one."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A log directory: its error, or its replicas. The byte counts refer to its file system."""

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
    """A reassignment in progress."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


# -- groups -----------------------------------------------------------------------------------


class GroupState(StrEnum):
    """The state of a group, with Kafka's names."""

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
        """Ignore case; return UNKNOWN for any other value, such as a state of a newer Kafka."""
        # Filters may be written in lower case, and newer brokers have more states.
        return next((x for x in cls if x.lower() == str(value).lower()), cls.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in a listing; `state` is None before Kafka 2.6, `type` before 3.8."""

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
    """A member of a group, with decoded topics and partitions, and the raw bytes as received.

    The epoch, the target assignment and the pattern exist only in the protocol of KIP-848.
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
    """A group; for consumers, `protocol` is the name of the assignor that the members share."""

    group_id: str
    type: str
    """The type as in `list_groups`: "classic", or "consumer" for KIP-848.

    Only groups of KIP-848 have epochs.
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
    """A member to remove, by instance id if it is static, otherwise by member id."""

    member_id: str = ""
    group_instance_id: str | None = None
