"""What the brokers of a cluster request from each other, and from ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plog.types import TopicPartition
from plogd.controller.cluster import broker_updates
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster


def test_only_the_next_controller_reads_the_states_of_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller's first requests are too small for all partitions."""
    monkeypatch.setattr(broker_updates, "_PARTITIONS_MAX", 2)
    cluster = ZooKeeperCluster(3)
    cluster.create("t")
    cluster.create("u", partitions=5)
    readers: set[int] = set()

    def count(one: int, get: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: str, *more: Any) -> Any:
            if path.endswith("/state"):
                readers.add(one)
            return get(path, *more)

        return counted

    for one in (1, 2, 3):
        client = cluster.client(one)
        monkeypatch.setattr(client, "get", count(one, client.get))
    cluster.kill(cluster.controller)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert readers == {cluster.controller}
    for broker in cluster.brokers.values():
        assert {topic.name for topic in broker.broker.cache.topics()} == {"t", "u"}


def test_partitions_of_a_leader_catch_up_together_without_a_fetch_session() -> None:
    cluster = ZooKeeperCluster(
        2,
        max_incremental_fetch_session_cache_slots=0,
        replica_fetch_response_max_bytes=1,  # One batch in each response.
    )
    cluster.create("t", partitions=4, replication_factor=2)
    follower = cluster.leader("t", 1)
    numbers = [number for number in range(4) if cluster.leader("t", number) != follower]
    cluster.kill(follower)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    for number in numbers:
        for _ in range(20):
            assert cluster.produce("t", b"a", number=number) == 0
    cluster.start(follower)
    hosted = cluster.brokers[follower].broker.log_manager
    logs = [hosted.logs[TopicPartition("t", number)] for number in numbers]
    cluster.until(lambda: any(log.log_end_offset == 10 for log in logs))
    assert all(log.log_end_offset >= 9 for log in logs)
