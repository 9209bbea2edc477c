"""The metadata store: a small, durable, versioned map, written by compare-and-set.

The controller stores topics and partitions in it, and each broker stores its settings and its
blocks of producer ids. embedded_store.py implements the store with a log, but callers do not depend
on this.

Keys and their values:

    ("topic", name)            TopicValue           the replicas of each partition
    ("partition", name, n)     PartitionValue       leader, epoch, in-sync replicas
    ("config", type, entity)   Mapping[str, str]    settings of a topic ("topic", name), of a broker
                                                    ("broker", id), of all brokers ("broker", "")
    ("producer_ids",)          ProducerIdsValue     the first unallocated producer id
    ("acl", id)                Acl                  an access rule, see security.acl.acl_key
    ("client_quota", …)        Mapping[str, float]  quotas of an entity, see quota.quota_key
    ("scram", user, mechanism) ScramCredential      a stored credential (security/scram.py)
    ("broker", id)             BrokerRegistration   read only: see `register_broker`
    ("feature", name)          int                  feature level that the stored records require
    ("delete_topic", name)     True                 the topic is being deleted, see below

Removing a topic also removes its partitions, its settings, and the mark that it is being deleted.
An existing topic can get more partitions, whose own keys are written with or after the topic's key,
and its partitions can get other replicas.

A store that removes a topic in several steps keeps the keys ("delete_topic", name), so that another
controller can complete a deletion. The embedded store removes a topic with a single record, so it
has no such keys: it accepts a change to one, which has no effect.

Invariant: a write completes only when the change is durable, and `get`, `load` and `watch` provide
only durable values. Values must not be changed in place. Source: the znodes and KRaft records of
Kafka 3.9, where both agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from plog.error_base import PlogError
from plog.types import Uuid
from plogd.ports import Later

Key: TypeAlias = tuple[str | int, ...]

# Versions of existing keys are offsets in the metadata log, which are never negative.
ABSENT: Final = -1
"""The version of a missing key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicValue:
    """A topic's id, and the replicas of each partition, starting with its preferred leader."""

    topic_id: Uuid
    # Partition leaders and epochs have keys of their own, because they change much more often.
    assignments: Mapping[int, tuple[int, ...]]
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The replicas that a reassignment adds, for the partitions that are being reassigned."""
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The replicas that a reassignment removes once the added replicas are in sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionValue:
    """A partition's state; `leader` is -1 if the partition has no leader."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    is_recovering: bool = False
    """Whether the leader comes from an unclean election, and has not confirmed it (KIP-704)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsValue:
    """The reserved producer ids: all ids below `next_producer_id`."""

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
    """A new value for a key, or None to remove it; applied if the key's version is `expected`."""

    key: Key
    value: Any
    """A value of the key's type in the table above, or None."""
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The change was made; `version` is the key's new version (ABSENT after a removal)."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The change was not made: the key has this value and version instead of the expected one."""

    value: Any
    version: int


# A single broker is always the controller, so EmbeddedStore never returns it.
@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """The change was not made, because this broker is no longer the controller of that term."""


class DuplicateBrokerId(PlogError):
    """Another broker is registered with the id of this one; the message names it."""


# Values instead of exceptions, because each change of a write has its own outcome.
Outcome: TypeAlias = Written | Conflict | Fenced
Watcher: TypeAlias = Callable[[Key, Any, int], None]
"""Called with each change to a watched key: (key, value or None, version or ABSENT)."""


class MetadataStore(Protocol):
    """A metadata store with the keys above. A caller's writes take effect in order."""

    max_atomic_changes: int
    """The largest number of changes in one `write_atomic`."""
    keeps_deletion_marks: bool
    """Whether it keeps ("delete_topic", name), because it removes topics in several steps."""

    def get(self, key: Key) -> tuple[Any, int]:
        """Return the value of a key and its version; (None, ABSENT) if it is missing."""
        ...

    def load(self, prefix: Key) -> dict[Key, tuple[Any, int]]:
        """Return all keys that begin with `prefix`, with their values and versions."""
        ...

    def problem(self, key: Key) -> str | None:
        """Return why the stored value of a key cannot be read, or None.

        Such a key looks missing. A topic whose settings or partitions cannot be read must not be
        served: with the default retention, records might be deleted that must be kept.
        """
        ...

    def write(self, changes: Sequence[Change], term: int | None = None) -> Later[list[Outcome]]:
        """Write each change independently, in order; fails if the outcome is unknown.

        `term` is the result of `campaign`, or None for keys that any broker may write.
        """
        ...

    def write_atomic(
        self, changes: Sequence[Change], term: int | None = None
    ) -> Later[list[Outcome]]:
        """Write all changes or none: if any outcome is not `Written`, nothing was changed."""
        ...

    def campaign(self) -> Later[int]:
        """Become the controller and return the term for its writes, which is its epoch.

        This may wait for years: until the present controller is gone, and this broker is the first
        to notice. Then `load` returns all topics and partitions. One campaign at a time.
        """
        ...

    def resigned(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever this broker stops being the controller.

        It must stop acting as the controller at once: another broker may already be the controller,
        and writes with the old term are `Fenced`. To become the controller again, it campaigns.
        """
        ...

    def unregistered(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the registration of this broker has ended.

        The broker must register again, and until then lead no partition.
        """
        ...

    @property
    def lease_end_ms(self) -> float:
        """Until when no other broker can act in place of this one, by the monotonic clock.

        Infinite if that can never happen. The time rises while the store is reachable.
        """
        ...

    def register_broker(self, registration: BrokerRegistration) -> Later[int]:
        """Register a broker that has just started, and return its broker epoch.

        The leader epoch of each partition that it leads rises by one, because a leader never
        appends in an epoch that its log held before (rule R6); in a cluster, the controller raises
        it. Fails with `DuplicateBrokerId` if another broker keeps this id.
        """
        ...

    def watch(self, prefix: Key, watcher: Watcher) -> None:
        """Call `watcher` for every later change to a key that begins with `prefix`."""
        ...
