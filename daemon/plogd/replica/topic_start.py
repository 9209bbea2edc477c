"""Start all topics when the broker starts, also if a disk has no room for some of their logs.

Partitions whose logs cannot be created are offline; the broker tries to create their logs again
every second until there is room. Called by broker.py, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plog.errors import KafkaStorageError, PolicyViolation
from plog.types import TopicPartition
from plogd.metadata.cache import TopicState
from plogd.ports import Report, Timers
from plogd.replica.hosted_topics import HostedTopics

_RETRY_MS = 1_000
_SHOWN_PARTITIONS = 10


class TopicStart:
    """Makes this broker the leader of all partitions; `may_retry` is false once that is over."""

    def __init__(
        self,
        topics: HostedTopics,
        *,
        timers: Timers,
        report: Report,
        may_retry: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._timers = timers
        self._report = report
        self._may_retry = may_retry

    async def start(self, topics: Sequence[TopicState]) -> None:
        """Lead all partitions, except those whose logs cannot be created for lack of room."""
        try:
            await self._topics.start_topics(topics)
        except (KafkaStorageError, PolicyViolation) as error:
            missing = await self._topics.without_logs(topics)
            self._report(
                "cannot create the logs of {count} partitions ({partitions}): {error}; they are "
                "offline until there is room",
                count=len(missing),
                partitions=shown_partitions(missing),
                error=str(error),
                level="error",
            )
            self._topics.set_without_log(missing)
            await self._topics.start_topics(topics)
            self._retry_later(missing)

    def _retry_later(self, missing: Sequence[TopicPartition]) -> None:
        def retry() -> None:
            if self._may_retry():
                self._topics.make_logs_of(missing).then(
                    lambda _: self._report("created the missing logs of all partitions"),
                    lambda _: self._retry_later(missing),
                )

        self._timers.call_later(_RETRY_MS, retry)


def shown_partitions(partitions: Sequence[TopicPartition]) -> str:
    """Return the first few names, for a log line."""
    shown = ", ".join(map(str, partitions[:_SHOWN_PARTITIONS]))
    more = len(partitions) - _SHOWN_PARTITIONS
    return f"{shown} and {more} more" if more > 0 else shown
