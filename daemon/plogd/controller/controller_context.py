"""The topics that the active controller knows, with the versions of their keys in the store.

The context changes only after the store has confirmed a write or has been read, so it never
contains more than the store. Source: Kafka 3.9 ControllerContext.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from plog.types import Uuid
from plogd.controller.partition_index import PartitionIndex
from plogd.controller.topic_creation import collision_key
from plogd.metadata.cache import PartitionState, TopicState
from plogd.metadata.store import ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """A topic in the store."""

    state: TopicState
    """All partitions. Those that are in the store without a state have their first state here."""
    version: int
    """Version of the topic's key."""
    partition_versions: tuple[int, ...]
    """Versions of the partitions' keys, in the order of `state.partitions`; ABSENT without a state
    in the store."""

    @property
    def is_complete(self) -> bool:
        """Whether all partitions have a state in the store."""
        return ABSENT not in self.partition_versions


class ControllerContext:
    """All topics, by name."""

    def __init__(self) -> None:
        self._topics: dict[str, KnownTopic] = {}
        self._names: dict[str, str] = {}
        self._names_by_id: dict[Uuid, str] = {}
        self.incomplete: set[str] = set()
        """Topics with partitions that have no state in the store yet. They are not served."""
        self.deleting: set[str] = set()
        """Topics whose deletion, or the rollback of whose creation, has begun. They are not served,
        and their names are in use until their removal is written."""
        self.partitions = PartitionIndex()

    @property
    def names_by_collision_key(self) -> Mapping[str, str]:
        """The names of all topics by `collision_key`."""
        return self._names

    def get(self, name: str) -> KnownTopic | None:
        """Return a topic, or None if it does not exist."""
        return self._topics.get(name)

    def name_of(self, topic_id: Uuid) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self._names_by_id.get(topic_id)

    def offline_replicas(self, name: str, topic_id: Uuid, number: int) -> tuple[int, ...]:
        """Return the replicas of a partition that are known to be offline.

        They are not in the store, so they must be kept when a topic is read again.
        """
        known = self._topics.get(name)
        if known is None or known.state.topic_id != topic_id:
            return ()
        partitions = known.state.partitions
        return partitions[number].offline_replicas if number < len(partitions) else ()

    def existing(self, name: str) -> TopicState | None:
        """Return a topic that can be changed, or None."""
        known = self._topics.get(name)
        return None if known is None or name in self.deleting else known.state

    def served_topics(self) -> list[TopicState]:
        """Return all topics that clients can use."""
        excluded = self.deleting | self.incomplete
        return [known.state for name, known in self._topics.items() if name not in excluded]

    def deleted_topics(self) -> list[TopicState]:
        """Return the topics whose deletion has begun."""
        known = (self._topics.get(name) for name in sorted(self.deleting))
        return [one.state for one in known if one is not None]

    def put(self, known: KnownTopic) -> None:
        """Add or replace a topic."""
        self.partitions.drop(known.state.name)
        self.partitions.update(known.state.name, known.state.partitions)
        self._put(known)

    def _put(self, known: KnownTopic) -> None:
        name = known.state.name
        old = self._topics.get(name)
        if old is not None and old.state.topic_id != known.state.topic_id:
            self._names_by_id.pop(old.state.topic_id, None)
        self._topics[name] = known
        self._names_by_id[known.state.topic_id] = name
        self._names[collision_key(name)] = name
        if known.is_complete:
            self.incomplete.discard(name)
        else:
            self.incomplete.add(name)

    def put_partitions(
        self,
        name: str,
        changed: Mapping[int, tuple[PartitionState, int]],
        topic_version: int | None = None,
    ) -> None:
        """Replace partitions of a topic, by number, with their versions; ignore unknown ones.

        `topic_version` is the version of the topic's key, if it has changed.
        """
        known = self._topics.get(name)
        if known is None:
            return
        states, versions = list(known.state.partitions), list(known.partition_versions)
        for number, (state, version) in changed.items():
            if number < len(states):
                states[number], versions[number] = state, version
        self.partitions.update(
            name, [state for number, (state, _) in changed.items() if number < len(states)]
        )
        self._put(
            replace(
                known,
                version=known.version if topic_version is None else topic_version,
                state=replace(known.state, partitions=tuple(states)),
                partition_versions=tuple(versions),
            )
        )

    def put_config(self, name: str, config: Mapping[str, str]) -> None:
        """Replace the settings of a topic; do nothing if it is unknown."""
        known = self._topics.get(name)
        if known is not None:
            self._topics[name] = replace(known, state=replace(known.state, config=config))

    def drop(self, name: str) -> None:
        """Remove a topic, which exists."""
        known = self._topics.pop(name)
        self.partitions.drop(name)
        self._names_by_id.pop(known.state.topic_id, None)
        key = collision_key(name)
        # An old cluster may have two topics whose names collide.
        if self._names.get(key) == name:
            del self._names[key]
        self.incomplete.discard(name)
        self.deleting.discard(name)
