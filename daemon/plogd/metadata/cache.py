"""What this broker knows of the cluster's topics: the answer to Metadata, and topic ids to names.

Filled by whoever starts and stops replicas here, after the log of a partition is ready, so that a
client never hears of a topic it cannot use yet. The truth is in the metadata store; this is a copy
that request handlers may read without waiting. The store's own log is no topic and never in here.

Source: Kafka 4.0 KRaftMetadataCache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plog.types import Uuid

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics whose records only coordinators write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Who holds and who leads a partition; `leader` is -1 when nobody does."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic with its partitions, by number, and the settings of its own."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionState, ...]
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        """Whether only coordinators may write to it."""
        return self.name in INTERNAL_TOPICS


class MetadataCache:
    """All topics this broker tells clients about. Look-ups are one dictionary access."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicState] = {}
        self._names: dict[Uuid, str] = {}
        self._sorted: list[str] | None = []
        """The names in order; None while that is out of date."""
        self.version = 0
        """Rises with each change."""

    def topic(self, name: str) -> TopicState | None:
        """The topic of this name."""
        return self._topics.get(name)

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of the topic with this id."""
        return self._names.get(topic_id)

    def topics(self) -> Iterable[TopicState]:
        """Every topic, by name."""
        if self._sorted is None:
            self._sorted = sorted(self._topics)
        return [self._topics[name] for name in self._sorted]

    @property
    def topic_count(self) -> int:
        """How many topics there are."""
        return len(self._topics)

    def update(self, topic: TopicState) -> None:
        """The topic is as `topic` says from now on."""
        old = self._topics.get(topic.name)
        self.version += 1
        if old is None:
            self._sorted = None
        else:
            del self._names[old.topic_id]
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name

    def remove(self, name: str) -> None:
        """The topic is gone."""
        topic = self._topics.pop(name)
        self._sorted = None
        self.version += 1
        del self._names[topic.topic_id]
