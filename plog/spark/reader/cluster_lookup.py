"""Lookups of partitions, offsets and sizes in a cluster, over blocking sockets.

They run in Spark's driver, which plans queries. `LogLookup` in log_lookup.py describes them.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from typing import Any, Protocol, Self, TypeVar

from plog.client.admin.configs import ConfigAdmin
from plog.client.admin.group_offsets import GroupOffsetAdmin
from plog.client.admin.log_dirs import LogDirAdmin
from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.admin.values import ConfigResource
from plog.client.consumer.offset_lookup import OffsetLookup
from plog.client.network.cluster import Cluster
from plog.client.network.socket_network import SocketNetwork, run_blocking
from plog.client.settings import ConsumerSettings
from plog.errors import UnknownTopicOrPartition
from plog.spark.options.topic_choice import TopicChoice
from plog.spark.reader.data_loss import LogBounds
from plog.types import TopicPartition, Uuid

T = TypeVar("T")


class _LookUp(Protocol):
    """`OffsetLookup.ends` or `OffsetLookup.beginnings`."""

    def __call__(
        self, partitions: Collection[TopicPartition], *, timeout_s: float, retry_unknown: bool
    ) -> Coroutine[Any, Any, dict[TopicPartition, int]]: ...


class ClusterLookup:
    """A connection to a cluster; `settings` are a consumer's. Close it with `close` or ``with``.

    Every lookup is retried until ``default.api.timeout.ms``, then raises the last error.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        made = ConsumerSettings.from_options(settings)
        self._timeout_s = made.default_api_timeout_ms / 1000
        self._cluster = Cluster(SocketNetwork(client_id=made.client_id), made)
        self._offsets = OffsetLookup(
            self._cluster,
            self._cluster.network,
            # With read_committed, the end is that of the completed transactions.
            isolation_level=int(made.isolation_level == "read_committed"),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; repeated calls have no effect."""
        self._run(self._cluster.close())

    def partitions(
        self, topics: TopicChoice, *, skip_missing: bool = False
    ) -> dict[TopicPartition, Uuid | None]:
        """Return the partitions of a query, sorted, with the ids of their topics if known.

        Raises UnknownTopicOrPartition for a missing topic or partition, unless `skip_missing`. A
        pattern may match no topic.
        """
        admin = TopicDescriptionAdmin(self._cluster)
        names = topics.topics or tuple({partition.topic for partition in topics.partitions})
        if topics.pattern is not None:
            # Internal topics are not listed, as in the connector.
            existing = self._run(admin.list_topics())
            names = tuple(name for name in existing if topics.pattern.search(name))
        if not names:
            return {}
        results = self._run(admin.describe_topics(names))
        # A topic that matched the pattern may have been deleted since.
        may_miss = skip_missing or topics.pattern is not None
        found: dict[TopicPartition, Uuid | None] = {}
        for topic in names:
            try:
                described = results.get(topic)
            except UnknownTopicOrPartition:
                if not may_miss:
                    raise
                continue
            for one in described.partitions:
                found[TopicPartition(topic, one.partition)] = described.topic_id
        if topics.partitions:
            missing = set(topics.partitions) - found.keys()
            if missing and not skip_missing:
                raise UnknownTopicOrPartition(f"{min(missing)} does not exist")
            found = {
                partition: found[partition]
                for partition in topics.partitions
                if partition not in missing
            }
        # The tasks of a query are in this order, so that they are the same each time.
        return dict(sorted(found.items()))

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds]:
        """Return the start and the end of each log, in the order of `partitions`.

        Raises UnknownTopicOrPartition immediately if one has been deleted.
        """
        if not partitions:
            return {}
        # The start is looked up last: it may only grow, so the range is never larger than the log.
        ends = self._of_existing(self._offsets.ends, partitions)
        starts = self._of_existing(self._offsets.beginnings, partitions)
        return {partition: LogBounds(starts[partition], ends[partition]) for partition in ends}

    def _of_existing(
        self, look_up: _LookUp, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        backoff = self._cluster.backoff(self._cluster.deadline(self._timeout_s))
        while True:
            try:
                return self._run(look_up(partitions, timeout_s=backoff.left_s, retry_unknown=False))
            except UnknownTopicOrPartition as error:
                # Raises the same error if one was deleted; the lookup would wait for it until the
                # timeout. A leader that does not know an existing partition has just started.
                self.partitions(TopicChoice(partitions=tuple(partitions)))
                self._run(backoff.wait_or_raise(error))

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record at or after each time in ms, or None."""
        if not times:
            return {}
        found = self._run(self._offsets.at_times(times, timeout_s=self._timeout_s))
        return {partition: None if at is None else at.offset for partition, at in found.items()}

    def topics_with_append_time(self, topics: Collection[str]) -> set[str]:
        """Return those of `topics` with ``message.timestamp.type=LogAppendTime``."""
        if not topics:
            return set()
        admin = ConfigAdmin(self._cluster)
        resources = [ConfigResource.topic(topic) for topic in topics]
        described = self._run(admin.describe_configs(resources)).raise_first()
        return {
            resource.name
            for resource, configs in described.items()
            if configs["message.timestamp.type"].value == "LogAppendTime"
        }

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit `offsets` for a `group` without members.

        Raises NonEmptyGroup, UnknownTopicOrPartition, ...
        """
        admin = GroupOffsetAdmin(self._cluster)
        self._run(admin.alter_group_offsets(group, offsets)).raise_first()

    def size_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the size of each log on disk, compressed as it is stored."""
        admin = LogDirAdmin(self._cluster)
        sizes: dict[TopicPartition, int] = {}
        for directories in self._run(
            admin.describe_log_dirs(partitions=partitions)
        ).values_by_key.values():
            for directory in directories.values():
                for partition, replica in directory.replicas.items():
                    # A replica that lags, or that is being moved, is smaller than the leader.
                    sizes[partition] = max(sizes.get(partition, 0), replica.size_bytes)
        return sizes

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return run_blocking(coroutine)
