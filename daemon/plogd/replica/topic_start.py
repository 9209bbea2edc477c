"""Start all topics at startup, even if a full disk prevents the creation of some logs.

If a log cannot be created, its partition is offline, and the broker retries every second until
there is room. Called once, by broker.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from plog.errors import KafkaStorageError, PolicyViolation
from plog.types import TopicPartition
from plogd.metadata.cache import TopicState
from plogd.ports import Later, Report, Timers, spawn
from plogd.replica.hosted_topics import HostedTopics

_RETRY_MS = 1_000
"""Interval between two attempts to create the missing logs."""
_SHOWN_PARTITIONS = 10


class TopicStart:
    """Makes this broker the leader of all partitions; retries until `may_retry` returns False."""

    def __init__(
        self,
        topics: HostedTopics,
        *,
        timers: Timers,
        report: Report,
        may_retry: Callable[[], bool],
        exclusively: Callable[[str, Callable[[], Later[None]]], Later[None]],
    ) -> None:
        """`exclusively` runs a function while nothing else changes the topic with a name."""
        self._topics = topics
        self._timers = timers
        self._report = report
        self._may_retry = may_retry
        self._exclusively = exclusively

    async def start(self, topics: Sequence[TopicState]) -> None:
        """Become the leader of all partitions except those with logs that cannot be created."""
        try:
            await self._topics.start_topics(topics)
        # PolicyViolation means that the process has too few file descriptors for all logs.
        except (KafkaStorageError, PolicyViolation) as error:
            # Logs in other log directories may have been created.
            missing = await self._topics.without_logs(topics)
            self._report(
                "cannot create the logs of {count} partitions ({partitions}): {error}; they stay"
                " offline until space is available",
                count=len(missing),
                partitions=shown_partitions(missing),
                topic_partitions=missing,
                error=str(error),
                level="error",
            )
            # `start_topics` then does not try to create these logs again.
            self._topics.set_without_log(missing)
            await self._topics.start_topics(topics)
            self._retry_later(missing)

    def _retry_later(self, missing: Sequence[TopicPartition]) -> None:
        def retry() -> None:
            if self._may_retry():
                spawn(self._create(missing)).then(
                    lambda _: self._report("created the missing logs of all partitions"),
                    # Silently, because the first error was logged and would be repeated every
                    # second.
                    lambda _: self._retry_later(missing),
                )

        self._timers.call_later(_RETRY_MS, retry)

    async def _create(self, missing: Sequence[TopicPartition]) -> None:
        by_topic: dict[str, list[TopicPartition]] = {}
        for key in missing:
            by_topic.setdefault(key.topic, []).append(key)
        for name, keys in by_topic.items():
            # Never while the topic is being deleted: it would be served again, without a record in
            # the metadata store.
            await self._exclusively(name, partial(self._topics.create_missing_logs, keys))


def shown_partitions(partitions: Sequence[TopicPartition]) -> str:
    """Return the first few partitions as text for a log line."""
    shown = ", ".join(map(str, partitions[:_SHOWN_PARTITIONS]))
    more = len(partitions) - _SHOWN_PARTITIONS
    return f"{shown} and {more} more" if more > 0 else shown
