"""The fetchers of a broker: one for each leader and log directory."""

from __future__ import annotations

import pytest

from plog.types import TopicPartition
from plogd.fair_queue import FairQueue
from plogd.ports import Later
from tests.helpers.sim.sim_cluster import SimCluster


def sizes(cluster: SimCluster, one: int = 1) -> dict[tuple[int, str], int]:
    """Return the numbers of partitions that the fetchers of broker `one` follow."""
    fetchers = cluster.replicas[one].fetchers.fetchers
    return {key: len(fetcher) for key, fetcher in fetchers.items()}


def test_partitions_share_the_fetcher_of_their_leader() -> None:
    cluster = SimCluster(3)
    cluster.create("t", [2, 1], [2, 1], [3, 1], [1, 2], [2, 3])
    assert sizes(cluster) == {(2, "/data"): 2, (3, "/data"): 1}


def test_log_directories_have_fetchers_of_their_own() -> None:
    cluster = SimCluster(2, log_dirs=("/a", "/b"))
    cluster.create("t", [2, 1], [2, 1], [2, 1], [2, 1])
    assert sorted(path for _, path in sizes(cluster)) == ["/a", "/b"]
    assert sum(sizes(cluster).values()) == 4
    for number in range(4):
        cluster.produce(b"a", number=number)
    cluster.advance(100)
    assert [cluster.end_offsets("t", number)[1] for number in range(4)] == [1] * 4


def test_partition_moves_to_the_fetcher_of_its_new_leader() -> None:
    cluster = SimCluster(3)
    cluster.create("t", [2, 1, 3], [2, 1, 3])
    cluster.elect(3, number=1)
    assert sizes(cluster) == {(2, "/data"): 1, (3, "/data"): 1}
    cluster.elect(3, number=0)
    assert sizes(cluster) == {(3, "/data"): 2}, "the other fetcher is closed"
    for number in (0, 1):
        cluster.produce(b"a", number=number)
    cluster.advance(100)
    assert [cluster.end_offsets("t", number)[1] for number in (0, 1)] == [1, 1]


def test_partition_without_a_leader_waits_for_one() -> None:
    cluster = SimCluster(2)
    cluster.create("t", [2, 1])
    cluster.produce(b"a")
    cluster.advance(100)
    cluster.elect(-1)
    assert sizes(cluster) == {}
    cluster.elect(2)
    cluster.produce(b"b")
    cluster.advance(100)
    assert cluster.end_offsets() == {1: 2, 2: 2}


def test_leader_that_is_down_is_fetched_from_when_it_returns() -> None:
    cluster = SimCluster(2)
    cluster.create("t", [2, 1])
    cluster.produce(b"a")
    cluster.advance(100)
    cluster.kill(2)
    cluster.advance(5000)
    cluster.start(2, cluster.files[2])
    cluster.elect(2)
    cluster.produce(b"b")
    cluster.advance(3000)
    assert cluster.end_offsets() == {1: 2, 2: 2}
    assert cluster.records(1) == cluster.records(2)


def test_fetcher_of_thousands_of_partitions_leaves_room_for_other_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = SimCluster(2)
    cluster.create("t", *[[2, 1]] * 2_500)
    cluster.advance(3000)
    turns: list[FairQueue] = []
    turn = FairQueue.turn

    def counted(queue: FairQueue) -> Later[None]:
        turns.append(queue)
        return turn(queue)

    monkeypatch.setattr(FairQueue, "turn", counted)
    cluster.produce(b"a", number=1234)
    cluster.advance(100)
    assert cluster.end_offsets("t", 1234) == {1: 1, 2: 1}
    # A new request follows the response, and its positions are read in three turns.
    assert turns.count(cluster.brokers[1].broker.fair_queue) >= 2


def test_closed_manager_follows_no_partition() -> None:
    cluster = SimCluster(2)
    cluster.create("t", [2, 1], [2, 1])
    manager = cluster.replicas[1].fetchers
    manager.close()
    assert sizes(cluster) == {}
    manager.remove(TopicPartition("t", 0))
    manager.add(cluster.partition(1))
    cluster.produce(b"a", acks=1)
    cluster.advance(5000)
    assert cluster.end_offsets() == {1: 0, 2: 1}
