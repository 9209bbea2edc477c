"""`TopicReader`: lookups of topics and offsets, and reads of ranges, over blocking sockets.

Audits use it, and the SQL job. For single partitions, see `SimpleConsumer`.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterator, Mapping
from typing import Any, Self, TypeVar

from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.consumer.offset_lookup import OffsetLookup
from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.client.network.cluster import Cluster
from plog.client.network.socket_network import SocketNetwork, run_blocking
from plog.client.settings import ConsumerSettings
from plog.client.values import ConsumerRecord
from plog.errors import UnknownTopicOrPartition
from plog.types import TopicPartition, Uuid

T = TypeVar("T")

_READ_UNCOMMITTED = 0
# For audits: producers report the records of a transaction after they have committed it.
_ISOLATION = {"isolation.level": "read_committed"}


class TopicReader:
    """A connection to a cluster; `settings` are a consumer's. Close it with `close` or ``with``.

    Aborted transactions are not read. Every call is retried until ``default.api.timeout.ms``, and
    then raises the last error. Raises ConfigError for invalid settings.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        options = {**settings, **_ISOLATION}
        made = ConsumerSettings.from_options(options)
        self._timeout_s = made.default_api_timeout_ms / 1000
        self._consumer = SimpleConsumer(config=options)
        self._cluster = Cluster(SocketNetwork(client_id=made.client_id), made)
        self._uncommitted = OffsetLookup(
            self._cluster, self._cluster.network, isolation_level=_READ_UNCOMMITTED
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; repeated calls have no effect."""
        self._consumer.close()
        self._run(self._cluster.close())

    def topics(self) -> Collection[str]:
        """Return the names of all topics, except internal ones."""
        return self._run(TopicDescriptionAdmin(self._cluster).list_topics())

    def partitions(self, topics: Collection[str]) -> dict[TopicPartition, Uuid | None]:
        """Return the partitions of those topics that exist, with the ids of the topics if known."""
        if not topics:
            return {}
        described = self._run(TopicDescriptionAdmin(self._cluster).describe_topics(topics))
        found: dict[TopicPartition, Uuid | None] = {}
        for topic in topics:
            try:
                description = described.get(topic)
            except UnknownTopicOrPartition:
                continue
            for one in description.partitions:
                found[TopicPartition(topic, one.partition)] = description.topic_id
        return dict(sorted(found.items()))

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record."""
        return self._consumer.beginning_offsets(partitions) if partitions else {}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after each partition's last record that can be read."""
        return self._consumer.end_offsets(partitions) if partitions else {}

    def written_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each log, which may be after the start of an open transaction."""
        if not partitions:
            return {}
        return self._run(self._uncommitted.ends(partitions, timeout_s=self._timeout_s))

    def first_at(
        self, partitions: Collection[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return offset and timestamp of the first record at or after a time, or None."""
        if not partitions:
            return {}
        found = self._consumer.offsets_for_times(dict.fromkeys(partitions, time_ms))
        return {
            partition: None if at is None else (at.offset, at.timestamp)
            for partition, at in found.items()
        }

    def records(self, partition: TopicPartition, start: int, end: int) -> Iterator[ConsumerRecord]:
        """Yield the records of a range. Raises OffsetOutOfRange, RequestTimedOut, …"""
        return self._consumer.records(partition, start, end)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return run_blocking(coroutine)
