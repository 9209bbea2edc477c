"""All fetchers of a broker: one for each leader and log directory.

By rule R5, a fetcher sends its next request only when this replica can acknowledge the records of
the previous response. The fetchers of different log directories are therefore separate, so that a
slow disk delays only its own partitions. A partition without a leader is not followed until its
next state arrives.

Called on the reactor thread by role_changes.py. Source: Kafka 3.9 ReplicaFetcherManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from plog.types import TopicPartition
from plogd.ports import Later, ready, spawn
from plogd.replica.follower.follower_fetcher import FollowerFetcher
from plogd.replica.partition import Partition

FetcherKey = tuple[int, str]
"""The leader's broker id, and the path of the log directory."""

MakeFetcher = Callable[[int, str], FollowerFetcher]
"""Returns a new fetcher for a leader and a log directory."""


class ReplicaFetcherManager:
    """The fetchers of the partitions that this broker follows."""

    def __init__(self, make_fetcher: MakeFetcher) -> None:
        self._make_fetcher = make_fetcher
        self._fetchers: dict[FetcherKey, FollowerFetcher] = {}
        self._fetcher_of: dict[TopicPartition, FollowerFetcher] = {}
        self._is_closed = False

    @property
    def fetchers(self) -> Mapping[FetcherKey, FollowerFetcher]:
        """All fetchers."""
        return self._fetchers

    def lags(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield how many offsets below the leader's high watermark each partition lacks.

        Partitions may be added or removed between two steps.
        """
        for fetcher in list(self._fetchers.values()):
            yield from fetcher.lags()

    def has_failed(self, key: TopicPartition) -> bool:
        """Return whether the last fetch of a partition has failed."""
        fetcher = self._fetcher_of.get(key)
        return fetcher is not None and fetcher.has_failed(key)

    @property
    def failed_count(self) -> int:
        """Number of partitions whose last fetch has failed."""
        return sum(fetcher.failed_count for fetcher in self._fetchers.values())

    def add(self, partition: Partition) -> None:
        """Follow the partition's leader, in the partition's leader epoch.

        If the partition is followed already, `remove` must have completed.
        """
        assert partition.topic_partition not in self._fetcher_of, "it is followed already"
        if self._is_closed or partition.leader < 0:
            return
        key = partition.leader, partition.log.log_dir
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = self._make_fetcher(*key)
        self._fetcher_of[partition.topic_partition] = fetcher
        fetcher.add(partition)

    def remove(self, key: TopicPartition) -> Later[None]:
        """Stop following a partition; complete when its log is not used any more.

        Completes immediately if the partition is not followed.
        """
        fetcher = self._fetcher_of.pop(key, None)
        if fetcher is None:
            return ready(None)
        fetcher.remove(key)
        return spawn(fetcher.released(key))

    def close_idle(self) -> None:
        """Close the fetchers that follow no partition any more."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                del self._fetchers[key]
                fetcher.close()

    def close(self) -> None:
        """Stop following all partitions, because the broker is stopping."""
        self._is_closed = True
        fetchers, self._fetchers = self._fetchers, {}
        for fetcher in fetchers.values():
            fetcher.close()
        self._fetcher_of.clear()
