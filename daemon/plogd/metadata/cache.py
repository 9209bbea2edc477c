"""The topics, live brokers and controller that this broker shows to clients.

A topic is added when its partitions have started on this broker and their logs are ready, so
clients only see topics that they can use. The metadata store is authoritative; the cache is a copy
that request handlers read without waiting. The store's own log is not a topic, so the cache does
not contain it.

Source: Kafka 3.9 ZkMetadataCache; Kafka 4.0 KRaftMetadataCache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from plog.types import ZERO_UUID, Uuid
from plogd.metadata.store import BrokerRegistration, Endpoint

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that hold the state of coordinators, as in Kafka's Topic.INTERNAL_TOPICS."""


NO_LEADER: Final = -1
"""The leader of a partition that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition's replicas and leader, which may be `NO_LEADER`."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    offline_replicas: tuple[int, ...] = ()
    """Replicas that the controller knows to be offline; replicas on dead brokers may be missing."""
    adding_replicas: tuple[int, ...] = ()
    """The replicas that a reassignment adds (KIP-455). Only the controller and replicas know it."""
    removing_replicas: tuple[int, ...] = ()
    """The replicas that a reassignment removes, once the others are in sync."""
    is_recovering: bool = False
    """Whether the leader comes from an unclean election, and has not confirmed it (KIP-704); only
    the controller knows it."""

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment of the partition is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker:
    """A broker that is running, and its endpoints by listener name."""

    broker_id: int
    endpoints: Mapping[str, Endpoint]
    rack: str | None = None

    @classmethod
    def of(cls, registration: BrokerRegistration) -> LiveBroker:
        """Return the broker with this registration."""
        # A listener name can have an IPv4 and an IPv6 endpoint (KIP-797). Kafka's responses have
        # only one address for each broker: clients get the first one.
        endpoints = {each.name: each for each in reversed(registration.endpoints)}
        return cls(broker_id=registration.broker_id, endpoints=endpoints, rack=registration.rack)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic with its partitions, ordered by number, and the settings that clients have set."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionState, ...]
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        """Whether the topic holds the state of a coordinator."""
        return self.name in INTERNAL_TOPICS


class MetadataCache:
    """The topics and brokers that this broker shows to clients. A lookup is one dict access."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicState] = {}
        # Fetch (version 13) and Produce (version 13) contain only topic ids (KIP-516).
        self._names: dict[Uuid, str] = {}
        self._sorted: list[str] | None = []
        """All names in order; None if they have to be sorted again."""
        self.live_brokers: Mapping[int, LiveBroker] = {}
        """The live brokers by id, in the order of their ids."""
        self.live_broker_ids: frozenset[int] = frozenset()
        """The ids in `live_brokers`."""
        self.controller_id = -1
        """The id of the active controller; -1 if it is unknown."""
        self._ids_by_listener: dict[str, frozenset[int]] = {}
        """The results of `brokers_with`."""
        # Encoded Metadata responses are shared between clients until this number changes.
        self.version = 0
        """Increases with each change."""

    def topic(self, name: str) -> TopicState | None:
        """Return the topic with this name, or None."""
        return self._topics.get(name)

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self._names.get(topic_id)

    def topics(self) -> Iterable[TopicState]:
        """Return all topics, sorted by name."""
        if self._sorted is None:  # Sorted once after each change instead of for each request.
            self._sorted = sorted(self._topics)
        # A new list, because request handlers go through it in slices while topics change.
        return [self._topics[name] for name in self._sorted]

    @property
    def topic_count(self) -> int:
        """Number of topics."""
        return len(self._topics)

    def brokers_with(self, listener_name: str) -> frozenset[int]:
        """Return the ids of the live brokers that have a listener with this name."""
        ids = self._ids_by_listener.get(listener_name)
        if ids is None:  # Computed once after each change instead of for each request.
            ids = frozenset(
                broker_id
                for broker_id, broker in self.live_brokers.items()
                if listener_name in broker.endpoints
            )
            self._ids_by_listener[listener_name] = ids
        return ids

    def update_brokers(self, brokers: Iterable[LiveBroker], *, controller_id: int) -> None:
        """Replace all live brokers and the controller, as UpdateMetadata does."""
        # A new dict, because responses that are encoded in slices keep the old one.
        in_order = sorted(brokers, key=lambda broker: broker.broker_id)
        self.live_brokers = {broker.broker_id: broker for broker in in_order}
        self.live_broker_ids = frozenset(self.live_brokers)
        self.controller_id = controller_id
        self._ids_by_listener = {}
        self.version += 1

    def update(self, topic: TopicState) -> None:
        """Add or replace a topic."""
        old = self._topics.get(topic.name)
        self.version += 1
        if old is None:
            self._sorted = None
        else:
            self._names.pop(old.topic_id, None)  # A recreated topic has a different id.
        self._topics[topic.name] = topic
        # A controller that does not know topic ids sends no id.
        if topic.topic_id != ZERO_UUID:
            self._names[topic.topic_id] = topic.name

    def remove(self, name: str) -> None:
        """Remove a topic."""
        topic = self._topics.pop(name)
        self._sorted = None
        self.version += 1
        self._names.pop(topic.topic_id, None)
