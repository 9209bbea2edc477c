"""plog/cli/reassign_partitions/throttles.py: which replicas and brokers are throttled."""

from __future__ import annotations

from plog.cli.reassign_partitions.throttles import (
    PartitionMove,
    proposed_moves,
    throttled_replicas,
    throttled_topics,
)
from plog.client.admin.values import Reassignment
from plog.client.network.socket_network import run_blocking
from plog.enums import ConfigResourceType
from plog.types import TopicPartition
from tests.helpers.client.reassigning_cluster import ReassigningCluster

T0, T10, U0 = TopicPartition("t", 0), TopicPartition("t", 10), TopicPartition("u", 0)


def _move(sources: set[int], destinations: set[int]) -> PartitionMove:
    return PartitionMove(frozenset(sources), frozenset(destinations))


def test_new_replicas_are_copied_from_the_current_ones() -> None:
    moves = proposed_moves({}, {T0: (2, 3, 4)}, {T0: (1, 2)})
    assert moves == {T0: _move({1, 2}, {3, 4})}


def test_ongoing_moves_stay_throttled() -> None:
    ongoing = Reassignment(replicas=(3, 1), adding_replicas=(3,), removing_replicas=(1,))
    moves = proposed_moves({U0: ongoing}, {T0: (2,)}, {T0: (1,)})
    assert moves == {U0: _move({1}, {3}), T0: _move({1}, {2})}


def test_move_that_replaces_another_is_copied_from_the_original_replicas() -> None:
    ongoing = Reassignment(replicas=(3, 1), adding_replicas=(3,), removing_replicas=(1,))
    # The description of the topic already lists the replica that is being added.
    moves = proposed_moves({T0: ongoing}, {T0: (4,)}, {T0: (3, 1)})
    assert moves == {T0: _move({1}, {4})}


def test_lists_contain_every_source_and_destination_in_kafkas_order() -> None:
    moves = {T0: _move({1, 2}, {3}), T10: _move({2}, {1}), U0: _move({1}, set())}
    assert throttled_replicas(moves) == {"t": ("0:1,0:2,10:2", "0:3,10:1"), "u": ("0:1", "")}


def test_only_lists_of_replica_numbers_are_traces_of_a_reassignment() -> None:
    cluster = ReassigningCluster({1: None})
    name = "leader.replication.throttled.replicas"
    for topic, value in (("t", "0:1"), ("all", "*")):
        cluster.configs[ConfigResourceType.TOPIC, topic] = {name: value}
    assert run_blocking(throttled_topics(cluster.as_cluster(), ["all", "t", "u"])) == ["t"]
