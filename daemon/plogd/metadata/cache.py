"""The topics that this broker shows to clients, by name and id.

A topic is added when its partitions have started on this broker and their logs are ready, so
clients only see topics that they can use. The metadata store is authoritative; the cache is a copy
that request handlers read without waiting. The store's own log is not a topic, so the cache does
not contain it.

Source: Kafka 4.0 KRaftMetadataCache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plog.types import Uuid

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that hold the state of coordinators, as in Kafka's Topic.INTERNAL_TOPICS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition's replicas and leader; `leader` is -1 if the partition has no leader."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int


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
    """All topics that this broker shows to clients. A lookup is one dictionary access."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicState] = {}
        # Fetch (version 13) and Produce (version 13) contain only topic ids (KIP-516).
        self._names: dict[Uuid, str] = {}
        self._sorted: list[str] | None = []
        """All names in order; None if they have to be sorted again."""
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

    def update(self, topic: TopicState) -> None:
        """Add or replace a topic."""
        old = self._topics.get(topic.name)
        self.version += 1
        if old is None:
            self._sorted = None
        else:
            del self._names[old.topic_id]  # A recreated topic has a different id.
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name

    def remove(self, name: str) -> None:
        """Remove a topic."""
        topic = self._topics.pop(name)
        self._sorted = None
        self.version += 1
        del self._names[topic.topic_id]
