"""Lookup of a topic before its first record: wait until its partitions are known.

A lookup ends at its caller's deadline, however long metadata requests take.
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
    """Finds topics in a cluster; several callers may wait for the same topic."""

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

        Does not wait for leaders, because records can wait for them in the accumulator. Errors that
        a retry cannot fix are raised immediately. After the timeout, raises
        UnknownTopicOrPartition, LeaderNotAvailable, RequestTimedOut or the last error of a metadata
        request. Raises ClosedError if the producer closes.
        """
        check_topic_names((topic,))
        deadline_s = self._network.now_s() + timeout_s
        self._cluster.add_topic(topic)
        # An earlier response may be out of date.
        self._answered.discard(topic)
        self._failures.pop(topic, None)
        error = self._missing(topic, partition)
        while error is not None:
            self._news.clear()
            # One request at a time for all callers.
            self._ask(topic)
            if not await self._news.wait(max(0.0, deadline_s - self._network.now_s())):
                raise self._failures.pop(topic, self._missing(topic, partition) or error)
            if self._is_closed:
                raise ClosedError(f"the producer was closed before it found topic {topic}")
            # A missing permission, for example: waiting until the deadline would only delay the
            # error.
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
            # The reason why no broker responded is more useful than the timeout alone.
            trouble = self._cluster.trouble
            why = f": {trouble}" if trouble is not None else ""
            return RequestTimedOut(f"timed out waiting for metadata of topic {topic}{why}")
        if known.error:
            return error_about(known.error, f"topic {topic}")
        # Brokers may report a topic that was just created without partitions for a while.
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
        # Waits after a success as well: callers whose partition is still missing must not send
        # requests without a pause.
        await self._cluster.backoff().wait()
        self._asking.discard(topic)
        self._news.set()
