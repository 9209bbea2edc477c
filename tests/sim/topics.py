"""Which topics the clients know to exist, to be gone, or to be in doubt.

A topic is known by its id; a name may be used again by another topic. Told by the admins' requests
and by every metadata answer. An unknown outcome (the connection broke) leaves a doubt, which the
next metadata answer usually resolves.
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
    """Its creation was acknowledged, or it was shown: it must not vanish by itself."""
    delete_requested: bool = False
    deleted: bool = False
    """Its deletion was acknowledged: it must never be seen again."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A topic as a metadata answer shows it."""

    topic_id: Uuid
    partitions: int
    leader_epochs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Known:
    """What was known when a metadata request was sent: topics that must be there, and must not."""

    alive: Mapping[Uuid, Topic]
    gone: frozenset[Uuid]


class Topics:
    """Every incarnation ever seen, by id."""

    def __init__(self) -> None:
        self.by_id: dict[Uuid, Topic] = {}
        self._doubtful_names: set[str] = set()
        """A DeleteTopics by this name may still be under way somewhere."""

    def created(self, name: str, topic_id: Uuid, partitions: int) -> None:
        """The broker says that it has made this topic."""
        topic = self._get(name, topic_id, partitions)
        if topic.deleted:
            raise Anomaly("undeleted-topic", f"{name} {topic_id.hex()} made with an old id")
        topic.created = True

    def deleting(self, *, name: str, topic_id: Uuid | None) -> None:
        """A deletion is about to be sent, by id or, where that is None, by name."""
        if topic_id is None:
            self._doubtful_names.add(name)
        for topic in self.by_id.values():
            if topic.topic_id == topic_id or (topic_id is None and topic.name == name):
                topic.delete_requested = True

    def deleted(self, *, name: str, topic_id: Uuid) -> None:
        """The broker says that this topic is gone."""
        topic = self._get(name, topic_id, 0)
        topic.delete_requested = topic.deleted = True

    def shown(self, sights: Mapping[str, Sight], known: Known) -> None:
        """A metadata answer for all topics; `known` is what was known when it was asked for."""
        for name, sight in sights.items():
            topic = self._get(name, sight.topic_id, sight.partitions)
            if topic.topic_id in known.gone:
                raise Anomaly("undeleted-topic", f"{name} {sight.topic_id.hex()} is back")
            topic.created = True
        shown = {sight.topic_id for sight in sights.values()}
        for topic in known.alive.values():
            if topic.topic_id not in shown and not self.may_be_gone(topic):
                raise Anomaly("lost-topic", f"{topic.name} {topic.topic_id.hex()} has vanished")

    def may_be_gone(self, topic: Topic) -> bool:
        """Whether somebody has asked for its deletion, perhaps without hearing of the outcome."""
        return topic.delete_requested or topic.name in self._doubtful_names

    @property
    def known(self) -> Known:
        """What any later metadata answer must agree with."""
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
