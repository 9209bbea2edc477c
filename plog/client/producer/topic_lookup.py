"""Topic lookup: before a topic's first record is sent, wait until its partitions are known.

A lookup ends at its caller's deadline, even if a metadata request takes longer.
"""

from __future__ import annotations

import logging

from plog.client.errors import ClosedError, error_about
from plog.client.network.cluster import Cluster
from plog.client.network.metadata import check_topic_names
from plog.client.network.ports import Network
from plog.errors import (
    KafkaError,
    LeaderNotAvailable,
    PlogError,
    RequestTimedOut,
    UnknownTopicOrPartition,
)

log = logging.getLogger("plog.client")


class TopicLookup:
    """The pending topic lookups of a producer; several callers may wait for the same topic."""

    def __init__(self, cluster: Cluster, network: Network) -> None:
        self._cluster = cluster
        self._network = network
        self._asking: set[str] = set()
        self._answered: set[str] = set()
        self._failures: dict[str, PlogError] = {}
        self._news = network.signal()
        self._is_closed = False
        cluster.on_update.append(lambda _: self._news.set())

    async def find(self, topic: str, partition: int | None, timeout_s: float) -> None:
        """Wait up to `timeout_s` until the topic is known and has `partition`.

        The call does not wait for leaders, because records can wait for leaders in the accumulator.
        It raises permanent errors immediately. After the timeout, it raises
        UnknownTopicOrPartition, LeaderNotAvailable, RequestTimedOut or the last error from a
        metadata request. If the producer closes, it raises ClosedError.
        """
        check_topic_names((topic,))
        deadline_s = self._network.now_s() + timeout_s
        self._cluster.add_topic(topic)
        # The response to an earlier lookup may be out of date.
        self._answered.discard(topic)
        self._failures.pop(topic, None)
        error = self._missing(topic, partition)
        while error is not None:
            self._news.clear()
            # All callers share one request at a time.
            self._ask(topic)
            if not await self._news.wait(max(0.0, deadline_s - self._network.now_s())):
                raise self._failures.pop(topic, self._missing(topic, partition) or error)
            if self._is_closed:
                raise ClosedError(f"the producer was closed before it found topic {topic}")
            # Waiting until the deadline would only delay a permanent error, such as a missing
            # permission.
            failure = self._failures.get(topic)
            if failure is not None and not getattr(failure, "retriable", False):
                raise self._failures.pop(topic)
            error = self._missing(topic, partition)
            # An error in older metadata may be out of date, so wait for a response to this lookup.
            if error is not None and not error.retriable and topic in self._answered:
                raise error

    def close(self) -> None:
        """Wake all waiters, which then raise ClosedError."""
        self._is_closed = True
        self._news.set()

    def _missing(self, topic: str, partition: int | None) -> KafkaError | None:
        """Return the error for a topic or partition missing from the current metadata, or None."""
        known = self._cluster.metadata.topics.get(topic)
        if known is None:
            # Include the reason why no broker responded: the timeout alone is less useful.
            trouble = self._cluster.trouble
            why = f": {trouble}" if trouble is not None else ""
            return RequestTimedOut(f"timed out waiting for metadata for topic {topic}{why}")
        if known.error:
            return error_about(known.error, f"topic {topic}")
        # For a while, brokers may report a new topic without partitions.
        if not known.partitions:
            return LeaderNotAvailable(f"topic {topic} has no partitions yet")
        if partition is not None and partition >= len(known.partitions):
            return UnknownTopicOrPartition(
                f"partition {partition} of topic {topic} does not exist: the topic has"
                f" {len(known.partitions)} partitions"
            )
        return None

    def _ask(self, topic: str) -> None:
        if topic not in self._asking:
            self._asking.add(topic)
            self._network.spawn(self._refresh(topic), f"looking up topic {topic}")

    async def _refresh(self, topic: str) -> None:
        """Request the topic's metadata once, then wait for retry.backoff.ms."""
        try:
            await self._cluster.refresh((topic,))
            self._answered.add(topic)
        except PlogError as error:
            self._failures[topic] = error
            self._news.set()
        # Wait even after a successful request: callers whose partition is still missing must not
        # send requests without a pause.
        await self._cluster.backoff().wait()
        self._asking.discard(topic)
        self._news.set()
