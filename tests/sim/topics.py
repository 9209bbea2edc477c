"""The topics that clients know to exist, know to be deleted, or are uncertain about.

A topic is identified by its id; another topic may use its name again. The admins' requests and
every Metadata response update this knowledge. If the outcome of a request is unknown because its
connection broke, the next Metadata response usually resolves the uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plog.types import Uuid
from tests.sim.checker import Anomaly


@dataclass(slots=True)
class Topic:
    """One incarnation of a topic."""

    name: str
    topic_id: Uuid
    partitions: int
    created: bool = False
    """Its creation was acknowledged, or a response listed it: it must not vanish by itself."""
    delete_requested: bool = False
    deleted: bool = False
    """Its deletion was acknowledged: no response may list it again."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A topic as listed in a Metadata response."""

    topic_id: Uuid
    partitions: int
    leader_epochs: Mapping[int, int] = field(default_factory=dict)
    leaders: Mapping[int, int] = field(default_factory=dict)
    """The broker that leads each partition, -1 for none."""


@dataclass(frozen=True, slots=True)
class Known:
    """What was known when a Metadata request was sent: topics that it must and must not list."""

    alive: Mapping[Uuid, Topic]
    gone: frozenset[Uuid]


class Topics:
    """Every incarnation ever listed, by id."""

    def __init__(self) -> None:
        self.shows_all = True
        """Whether a Metadata response contains everything that was acknowledged before its
        request. In a cluster, only at the end of the run: brokers learn of changes later."""
        self.by_id: dict[Uuid, Topic] = {}
        self._doubtful_names: set[str] = set()
        """A DeleteTopics request by this name may still be in transit."""

    def created(self, name: str, topic_id: Uuid, partitions: int) -> None:
        """Record that the broker acknowledged the creation of this topic."""
        topic = self._get(name, topic_id, partitions)
        if topic.deleted:
            raise Anomaly("undeleted-topic", f"{name} {topic_id.hex()} created with an old id")
        topic.created = True

    def deleting(self, *, name: str, topic_id: Uuid | None) -> None:
        """Record that a deletion is about to be sent, by id or, if that is None, by name."""
        if topic_id is None:
            self._doubtful_names.add(name)
        for topic in self.by_id.values():
            if topic.topic_id == topic_id or (topic_id is None and topic.name == name):
                topic.delete_requested = True

    def deleted(self, *, name: str, topic_id: Uuid) -> None:
        """Record that the broker acknowledged the deletion of this topic."""
        topic = self._get(name, topic_id, 0)
        topic.delete_requested = topic.deleted = True

    def shown(self, sights: Mapping[str, Sight], known: Known) -> None:
        """Check a Metadata response for all topics; `known` was noted when the request was sent."""
        for name, sight in sights.items():
            topic = self._get(name, sight.topic_id, sight.partitions)
            if topic.topic_id in known.gone and self.shows_all:
                raise Anomaly("undeleted-topic", f"{name} {sight.topic_id.hex()} is back")
            topic.created = True
        shown = {sight.topic_id for sight in sights.values()}
        for topic in known.alive.values() if self.shows_all else ():
            if topic.topic_id not in shown and not self.may_be_gone(topic):
                raise Anomaly("lost-topic", f"{topic.name} {topic.topic_id.hex()} has vanished")

    def may_be_gone(self, topic: Topic) -> bool:
        """Whether a client has requested its deletion, perhaps with an unknown outcome."""
        return topic.delete_requested or topic.name in self._doubtful_names

    @property
    def known(self) -> Known:
        """Return the knowledge that any later Metadata response must agree with."""
        return Known(
            alive={
                topic_id: topic
                for topic_id, topic in self.by_id.items()
                if topic.created and not self.may_be_gone(topic)
            },
            gone=frozenset(topic.topic_id for topic in self.by_id.values() if topic.deleted),
        )

    def _get(self, name: str, topic_id: Uuid, partitions: int) -> Topic:
        topic = self.by_id.get(topic_id)
        if topic is None:
            topic = self.by_id[topic_id] = Topic(name, topic_id, partitions)
        topic.partitions = max(topic.partitions, partitions)
        return topic
