"""Start topics that were being created or expanded when this broker's term as controller ended.

The next term writes what is missing of such a topic. If this broker is elected again, it must also
start the topic, because the operation has ended with an error before it could.

Called by broker.py, on the reactor's thread, once all topics have been started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from plog.errors import KafkaError, NotController
from plogd.controller.brokers import Brokers
from plogd.controller.controller import Controller
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import MetadataCache, TopicState
from plogd.ports import Later, Report, spawn


class ResumedTopics:
    """Starts topics that `cache` does not have as the controller knows them.

    Args:
        start: starts a topic, even if a full disk prevents the creation of some logs.
        on_bug: called with an unexpected error.
    """

    def __init__(
        self,
        controller: Controller,
        brokers: Brokers,
        cache: MetadataCache,
        *,
        start: Callable[[TopicState], Later[None]],
        fair_queue: FairQueue,
        report: Report,
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._controller = controller
        self._brokers = brokers
        self._cache = cache
        self._start = start
        self._queue = fair_queue
        self._report = report
        self._on_bug = on_bug

    def follow(self) -> None:
        """Start such topics now, and whenever this broker is elected again."""
        self._controller.on_elected = self._elected
        self._elected(self._controller.topics)

    def _elected(self, topics: Sequence[TopicState]) -> None:
        spawn(self._start_all(topics)).then(_ignore, lambda e: self._on_bug("resumed topics", e))

    async def _start_all(self, topics: Sequence[TopicState]) -> None:
        async for topic in Slices(self._queue).over(topics):
            if self._is_served(topic):
                continue
            try:
                await self._controller.run_exclusively(
                    topic.name, partial(self._start_one, topic.name)
                )
            except NotController:
                return  # The next election continues.
            except KafkaError as error:
                self._report(
                    "topic {topic} is offline: {error}",
                    topic=topic.name,
                    error=error.message,
                    level="error",
                )

    def _start_one(self, name: str) -> Later[None]:
        return spawn(self._start_unless_served(name))

    async def _start_unless_served(self, name: str) -> None:
        # Another operation may have deleted or started the topic while this one waited.
        topic = self._controller.topic(name)
        if topic is None or self._is_served(topic):
            return
        served = self._cache.topic(name)
        if served is not None and served.topic_id != topic.topic_id:
            await self._brokers.stop_topic(served)
        await self._start(topic)

    def _is_served(self, topic: TopicState) -> bool:
        served = self._cache.topic(topic.name)
        return (
            served is not None
            and served.topic_id == topic.topic_id
            and len(served.partitions) >= len(topic.partitions)
        )


def _ignore(_: None) -> None:
    """Do nothing: all topics have been started, or reported."""
