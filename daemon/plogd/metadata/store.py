"""The metadata store: a small, durable, versioned map, written by compare-and-set.

The controller keeps topics and partitions in it, each broker its configs and id blocks. The
implementation is a log of our own (embedded_store.py) or, in clusters, ZooKeeper; callers do not
depend on which.

Keys and their values:

    ("topic", name)            TopicValue           the replicas of each partition
    ("partition", name, n)     PartitionValue       leader, epoch, in-sync replicas
    ("config", type, entity)   Mapping[str, str]    settings of a topic ("topic", name), of a broker
                                                    ("broker", id), of all brokers ("broker", "")
    ("producer_ids",)          ProducerIdsValue     the first unallocated producer id
    ("acl", id)                Acl                  an access rule (security/acl.py)
    ("client_quota", …)        Mapping[str, float]  quotas of an entity, see quota.quota_key
    ("scram", user, mechanism) ScramCredential      a stored credential (security/scram.py)
    ("broker", id)             BrokerRegistration   read only: see `register_broker`
    ("feature", name)          int                  level of a feature the stored records need

Removing a topic removes its partitions and its config as well. An existing topic can only get more
partitions: its key with all of them, and the new partitions' keys, in one atomic write.

Invariant: a write completes only when the change is durable, and `load` and `watch` only show
durable values. Values must not be changed in place. Source: Kafka 3.9's znodes and KRaft records,
as far as both agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from plog.types import Uuid
from plogd.ports import Later

Key: TypeAlias = tuple[str | int, ...]

ABSENT: Final = -1
"""The version of a missing key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicValue:
    """A topic's id and, for each partition, its replicas, preferred leader first."""

    topic_id: Uuid
    assignments: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionValue:
    """The state of a partition; `leader` is -1 if it has no leader."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsValue:
    """Producer ids below `next_producer_id` belong to allocated blocks."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A listener of a broker, as registered in the cluster."""

    name: str
    host: str
    port: int
    security_protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """A registered broker; the store assigns `broker_epoch`."""

    broker_id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    broker_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A new value for a key, or None to remove it, provided that its version is `expected`."""

    key: Key
    value: Any
    """Of the key's type in the table above; Any, as a list holds changes of several types."""
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The change was made; `version` is the key's new version (ABSENT after a removal)."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The change was not made, because the key had another version: these are its contents."""

    value: Any
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """The change was not made, because a newer controller is active."""


Outcome: TypeAlias = Written | Conflict | Fenced
Watcher: TypeAlias = Callable[[Key, Any, int], None]
"""Called with each change to a watched key: (key, value or None, version or ABSENT)."""


class MetadataStore(Protocol):
    """A metadata store with the keys above. Writes of a caller take effect in order."""

    max_atomic_changes: int
    """The largest number of changes in one `write_atomic`."""

    def get(self, key: Key) -> tuple[Any, int]:
        """Return the value of a key and its version; (None, ABSENT) if it is missing."""
        ...

    def load(self, prefix: Key) -> dict[Key, tuple[Any, int]]:
        """Return all keys that begin with `prefix`, with value and version."""
        ...

    def write(self, changes: Sequence[Change], term: int | None = None) -> Later[list[Outcome]]:
        """Write each change independently, in order; fails if the outcome is unknown.

        `term` is the controller's, from `campaign`; None for keys that any broker may write.
        """
        ...

    def write_atomic(
        self, changes: Sequence[Change], term: int | None = None
    ) -> Later[list[Outcome]]:
        """Write all changes or none: if any outcome is not `Written`, nothing was changed."""
        ...

    def campaign(self) -> Later[int]:
        """Become the controller and return the term to write with."""
        ...

    def register_broker(self, registration: BrokerRegistration) -> Later[int]:
        """Register a broker that has just started, and return its broker epoch.

        The leader epoch of each partition that it leads rises by one, because a leader never
        appends in an epoch that its log held before (rule R6).
        """
        ...

    def watch(self, prefix: Key, watcher: Watcher) -> None:
        """Call `watcher` for every later change to a key that begins with `prefix`."""
        ...
