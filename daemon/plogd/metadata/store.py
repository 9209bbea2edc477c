"""What a metadata store is: a small versioned map that survives, written by compare-and-set.

The controller keeps topics and partitions in it, any broker its configs and id blocks. Behind this
interface lies a log of our own (embedded.py) or, in clusters, ZooKeeper. Nobody above knows which.

Keys and their values:

    ("topic", name)            TopicValue           who holds which partition
    ("partition", name, n)     PartitionValue       leader, epoch, in-sync replicas
    ("config", type, entity)   Mapping[str, str]    settings of a topic ("topic", name), of a broker
                                                    ("broker", id), of all brokers ("broker", "")
    ("producer_ids",)          ProducerIdsValue     the first producer id nobody has been given
    ("acl", id)                Acl                  who may do what (security/acl.py)
    ("client_quota", …)        Mapping[str, float]  quotas of an entity, see quota.quota_key
    ("scram", user, mechanism) ScramCredential      what is kept of a password (security/scram.py)
    ("broker", id)             BrokerRegistration   read only: see `register_broker`
    ("feature", name)          int                  level of a feature the stored records need

Removing a topic removes its partitions and its config with it. A topic that is there can only be
given more partitions: its key with all of them, and the new partitions' keys, in one atomic write.

Invariant: an outcome is told only when the change is durable, and what `load` and `watch` show is
durable too. Values are not to be changed in place. Source: what Kafka 3.9 keeps in znodes and what
its KRaft mode keeps in records, as far as both agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from plog.types import Uuid
from plogd.ports import Later

Key: TypeAlias = tuple[str | int, ...]

ABSENT: Final = -1
"""The version of a key that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicValue:
    """A topic's id and, for each partition, the brokers that hold it, preferred leader first."""

    topic_id: Uuid
    assignments: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionValue:
    """The state of one partition; `leader` is -1 when nobody leads it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsValue:
    """Producer ids below `next_producer_id` belong to blocks that were given out."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A listener of a broker as the cluster knows it."""

    name: str
    host: str
    port: int
    security_protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """A broker that has announced itself; `broker_epoch` is given by the store."""

    broker_id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    broker_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key's new value, None to remove it, if its version is still `expected`."""

    key: Key
    value: Any
    """Of the key's type in the table above: Any, because one list holds changes of many types."""
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The change was made; the key has this version now (ABSENT after a removal)."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """The key had another version than expected: nothing was changed, this is what is there."""

    value: Any
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """A newer controller has taken over: nothing was changed."""


Outcome: TypeAlias = Written | Conflict | Fenced
Watcher: TypeAlias = Callable[[Key, Any, int], None]
"""Told of each change of a watched key: (key, value or None, version or ABSENT)."""


class MetadataStore(Protocol):
    """See the module's text. Writes of one caller take effect in the order they were made."""

    max_atomic_changes: int
    """How many changes `write_atomic` takes."""

    def get(self, key: Key) -> tuple[Any, int]:
        """The value of one key and its version; (None, ABSENT) if it is not there."""
        ...

    def load(self, prefix: Key) -> dict[Key, tuple[Any, int]]:
        """All keys that begin with `prefix`, with value and version."""
        ...

    def write(self, changes: Sequence[Change], term: int | None = None) -> Later[list[Outcome]]:
        """Make the changes in order, each by itself; fails if it is unknown what became of them.

        `term` is the controller's, from `campaign`; None where any broker may write.
        """
        ...

    def write_atomic(
        self, changes: Sequence[Change], term: int | None = None
    ) -> Later[list[Outcome]]:
        """Make all changes or none: if one outcome is no `Written`, nothing was changed."""
        ...

    def campaign(self) -> Later[int]:
        """Become the controller; the term to write with."""
        ...

    def register_broker(self, registration: BrokerRegistration) -> Later[int]:
        """Announce a broker that has just started; its broker epoch.

        The leader epoch of each partition it leads rises by one: a leader never appends in an epoch
        its log held before (rule R6).
        """
        ...

    def watch(self, prefix: Key, watcher: Watcher) -> None:
        """Tell `watcher` of every change from now on to a key that begins with `prefix`."""
        ...
