"""Fill the metadata cache with what the controller sends in UpdateMetadata.

The controller sends all live brokers, and the states of the partitions that have changed. A request
may contain thousands of partitions, so they are applied in slices; each topic changes in one step.
Clients see the partitions of a topic up to the first one whose state has not arrived.

The caller makes one call at a time (control_requests.py). Called on the reactor thread. Source:
Kafka 3.9 ZkMetadataCache.updateMetadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from plog.types import Uuid
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import LiveBroker, MetadataCache, PartitionState, TopicState
from plogd.ports import Later, ready
from plogd.replica.hosted_topics import HostedTopics


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUpdate:
    """The changed partitions of a topic, by number; None for a partition that was deleted."""

    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionState | None]


class MetadataUpdates:
    """Applies updates to the metadata cache.

    Args:
        topic_overrides: returns the own settings of a topic.
    """

    def __init__(
        self,
        cache: MetadataCache,
        topics: HostedTopics,
        *,
        topic_overrides: Callable[[str], Mapping[str, str]],
        fair_queue: FairQueue,
    ) -> None:
        self._cache = cache
        self._topics = topics
        self._topic_overrides = topic_overrides
        self._queue = fair_queue
        self.confirm_deleted: Callable[[Collection[str]], Later[Collection[str]]] = ready
        """Returns which of the topics are not in the metadata store."""
        self.on_brokers: Callable[[], None] = lambda: None
        """Called when brokers have started or are gone."""
        self._after_gap: dict[str, tuple[Uuid, dict[int, PartitionState]]] = {}
        """The topic id, and the partitions that follow one whose state has not arrived, by
        topic."""

    async def apply(
        self,
        brokers: Iterable[LiveBroker],
        controller_id: int,
        topics: Sequence[TopicUpdate],
        *,
        is_full: bool = False,
    ) -> None:
        """Replace the live brokers and the controller, and update the partitions of `topics`.

        With `is_full`, the controller has sent all topics, of which `topics` are the last ones;
        others may have been deleted while this broker did not receive updates.
        """
        live = self._cache.live_broker_ids
        self._cache.update_brokers(brokers, controller_id=controller_id)
        # Not with each of the many updates of partitions.
        if self._cache.live_broker_ids != live:
            self.on_brokers()
        slices = Slices(self._queue)
        for update in topics:
            changed: dict[int, PartitionState | None] = {}
            async for number, state in slices.over(update.partitions.items()):
                changed[number] = state
            slices.spend(self._update(replace(update, partitions=changed)))
        if is_full:
            await self._remove_deleted({update.name for update in topics})

    async def _remove_deleted(self, sent: Collection[str]) -> None:
        shown = {topic.name for topic in self._cache.topics()}
        unsent = (shown | self._after_gap.keys()) - set(sent)
        for name in await self.confirm_deleted(unsent) if unsent else ():
            self._after_gap.pop(name, None)
            topic = self._cache.topic(name)
            if topic is not None:
                self._cache.remove(name)
                self._topics.on_topic_stopped(topic)

    def _update(self, update: TopicUpdate) -> int:
        """Update one topic; return the number of its partitions."""
        name, old = update.name, self._cache.topic(update.name)
        topic_id = update.topic_id
        known = self._known(name, topic_id, old)
        for number, state in update.partitions.items():
            if state is None:
                known.pop(number, None)
            else:
                known[number] = state
        shown = _without_gap(known)
        left = {number: state for number, state in known.items() if number >= len(shown)}
        self._after_gap.pop(name, None)
        if left:
            self._after_gap[name] = topic_id, left
        if shown:
            config = self._topic_overrides(name) if old is None else old.config
            topic = TopicState(name=name, topic_id=topic_id, partitions=shown, config=config)
            self._cache.update(topic)
            if old is None:
                # Their settings may have changed since this broker has hosted its replicas.
                self._topics.update_topic_config(name, config)
        elif old is not None:
            self._cache.remove(name)
            self._topics.on_topic_stopped(old)
        return len(known)

    def _known(
        self, name: str, topic_id: Uuid, old: TopicState | None
    ) -> dict[int, PartitionState]:
        """Return the partitions of the topic that have arrived, in the order of their numbers."""
        known: dict[int, PartitionState] = {}
        # A recreated topic has a different id, and none of the old partitions.
        if old is not None and old.topic_id == topic_id:
            known = {state.partition: state for state in old.partitions}
        gap_id, after_gap = self._after_gap.get(name, (topic_id, {}))
        if gap_id == topic_id:
            known.update(after_gap)
        return known


def _without_gap(known: Mapping[int, PartitionState]) -> tuple[PartitionState, ...]:
    """Return the partitions from 0 to the first that is missing."""
    shown: list[PartitionState] = []
    while len(shown) in known:
        shown.append(known[len(shown)])
    return tuple(shown)
