"""plog/balance/replica_plan.py: what is true of every plan, and the moves in simple cases."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.balance.placement import Assignments, Placement, by_topic, moved_bytes
from plog.balance.replica_plan import (
    NotEnoughBrokers,
    balance_replicas,
    leave_brokers,
    separate_racks,
)
from plog.types import TopicPartition
from tests.unit.balance.clusters import SomeCluster, check_replicas, clusters, crowded, spread


def _topic(name: str, *replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(name, number): each for number, each in enumerate(replicas)}


def _balanced(cluster: SomeCluster) -> Placement:
    placement = cluster.placement()
    balance_replicas(placement)
    return placement


def _moves(before: Assignments, after: Assignments) -> int:
    return sum(len(set(after[one]) - set(before[one])) for one in before)


# -- every plan ----------------------------------------------------------------------------------


@given(clusters())
def test_balance_keeps_all_replicas_on_different_brokers(cluster: SomeCluster) -> None:
    check_replicas(cluster, _balanced(cluster).replicas, cluster.racks)


@given(clusters())
def test_balance_puts_no_more_replicas_into_the_same_rack(cluster: SomeCluster) -> None:
    for partition, replicas in _balanced(cluster).replicas.items():
        assert crowded(cluster, replicas) <= crowded(cluster, cluster.assignments[partition])


@given(clusters())
def test_balance_separates_racks_as_far_as_possible(cluster: SomeCluster) -> None:
    racks = set(cluster.racks.values())
    for replicas in _balanced(cluster).replicas.values():
        assert len({cluster.racks[one] for one in replicas}) == min(len(racks), len(replicas))


@given(clusters(racks=False))
def test_balance_without_racks_makes_all_counts_equal(cluster: SomeCluster) -> None:
    placement = _balanced(cluster)
    assert spread(map(placement.count, placement.brokers)) <= 1
    for topic in by_topic(placement.replicas):
        assert spread(placement.topic_count(topic, one) for one in placement.brokers) <= 1


@given(clusters())
def test_balance_with_racks_leaves_no_single_move_that_makes_counts_more_equal(
    cluster: SomeCluster,
) -> None:
    placement = _balanced(cluster)
    for partition, replicas in placement.replicas.items():
        for source in replicas:
            for target in placement.brokers:
                if placement.may_move(partition, source, target):
                    difference = placement.topic_count(
                        partition.topic, source
                    ) - placement.topic_count(partition.topic, target)
                    assert difference <= 1
                    if difference == 1:
                        assert placement.count(source) - placement.count(target) <= 1


@given(clusters())
def test_balanced_cluster_does_not_change(cluster: SomeCluster) -> None:
    once = _balanced(cluster).replicas
    again = SomeCluster(racks=cluster.racks, assignments=once, sizes=cluster.sizes)
    assert _balanced(again).replicas == once


@given(clusters(racks=False))
def test_topic_moves_only_the_replicas_above_its_share(cluster: SomeCluster) -> None:
    """With one topic, each move takes a replica from a full broker or gives one to an empty one."""
    one = {tp: some for tp, some in cluster.assignments.items() if tp.topic == "t"}
    alone = SomeCluster(racks=cluster.racks, assignments=one, sizes=cluster.sizes)
    counts = Counter(broker for some in one.values() for broker in some)
    least, rest = divmod(sum(counts.values()), len(cluster.racks))
    above = sum(max(0, counts[broker] - least - (rest > 0)) for broker in cluster.racks)
    below = sum(max(0, least - counts[broker]) for broker in cluster.racks)
    assert _moves(one, _balanced(alone).replicas) == max(above, below)


@given(clusters(), st.data())
def test_brokers_are_left_without_any_other_move(cluster: SomeCluster, data: st.DataObject) -> None:
    leaving = data.draw(st.sets(st.sampled_from(sorted(cluster.racks))))
    rest = cluster.racks.keys() - leaving
    placement = cluster.placement()
    too_many = [
        one
        for one in cluster.assignments.values()
        if leaving.intersection(one) and len(one) > len(rest)
    ]
    if too_many:
        with pytest.raises(NotEnoughBrokers):
            leave_brokers(placement, leaving)
        # An error changes nothing.
        before = {one: list(some) for one, some in cluster.assignments.items()}
        assert placement.replicas == before
        return
    leave_brokers(placement, leaving)
    check_replicas(cluster, placement.replicas, rest)
    for partition, replicas in placement.replicas.items():
        before_replicas = cluster.assignments[partition]
        kept = [(place, one) for place, one in enumerate(before_replicas) if one in rest]
        assert all(replicas[place] == one for place, one in kept)


@given(clusters(), st.data())
def test_replacements_are_in_as_many_racks_as_possible(
    cluster: SomeCluster, data: st.DataObject
) -> None:
    leaving = data.draw(st.sampled_from(sorted(cluster.racks)))
    placement = cluster.placement()
    try:
        leave_brokers(placement, [leaving])
    except NotEnoughBrokers:
        return
    for partition, replicas in placement.replicas.items():
        before = cluster.assignments[partition]
        for target in set(replicas) - set(before):
            others = [one for one in replicas if one != target]
            free = set(cluster.racks) - {leaving, *others}
            best = min(crowded(cluster, [*others, one]) for one in free)
            assert crowded(cluster, replicas) == best


# -- simple cases --------------------------------------------------------------------------------


def test_new_broker_gets_the_smallest_partitions_of_each_topic() -> None:
    before = {
        **_topic("t", *[(1, 2), (2, 1), (1, 2), (2, 1)]),
        **_topic("u", *[(1, 2), (2, 1), (1, 2), (2, 1)]),
    }
    sizes = {partition: (partition.partition + 1) * 100 for partition in before}
    placement = Placement({1: None, 2: None, 3: None}, before, sizes)
    balance_replicas(placement)
    assert [placement.topic_count(topic, 3) for topic in "tu"] in ([2, 3], [3, 2])
    moved = moved_bytes(before, placement.replicas, sizes)
    assert {partition.partition for partition in moved} <= {0, 1, 2}


def test_single_partitions_of_many_topics_are_balanced_in_total() -> None:
    before = {TopicPartition(f"t{number}", 0): (1,) for number in range(6)}
    placement = Placement({1: None, 2: None, 3: None}, before, {})
    balance_replicas(placement)
    assert [placement.count(broker) for broker in (1, 2, 3)] == [2, 2, 2]


def test_replica_that_is_replaced_keeps_its_place_in_the_list() -> None:
    placement = Placement({1: None, 2: None, 4: None}, _topic("t", (1, 3, 2)), {})
    leave_brokers(placement, [3])
    assert placement.replicas == {TopicPartition("t", 0): [1, 4, 2]}


def test_replacement_is_in_the_rack_of_the_old_replica_if_the_others_are_occupied() -> None:
    racks = {1: "a", 2: "b", 4: "b", 5: "c"}
    before = _topic("t", (1, 2, 3), (5, 3, 1))
    # Broker 3 has left the cluster, so that its rack is unknown.
    placement = Placement(racks, before, {})
    leave_brokers(placement, [3])
    assert placement.replicas[TopicPartition("t", 0)] == [1, 2, 5]
    assert placement.replicas[TopicPartition("t", 1)][1] in (2, 4)


def test_two_replicas_in_one_rack_are_separated() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    placement = Placement(racks, _topic("t", (1, 2)), {})
    separate_racks(placement)
    assert len({racks[broker] for broker in placement.replicas[TopicPartition("t", 0)]}) == 2


def test_replica_of_the_fullest_broker_moves_to_another_rack() -> None:
    """Any other choice would need a second move to make the counts equal."""
    before = _topic("t", (1, 2), (2, 3))
    placement = Placement({1: "a", 2: "a", 3: "b"}, before, {})
    balance_replicas(placement)
    assert placement.replicas == {TopicPartition("t", 0): [1, 3], TopicPartition("t", 1): [2, 3]}


def test_racks_are_ignored_if_a_broker_has_none() -> None:
    placement = Placement({1: "a", 2: "a", 3: None}, _topic("t", (1, 2)), {})
    separate_racks(placement)
    assert placement.replicas == {TopicPartition("t", 0): [1, 2]}


def test_broker_that_racks_keep_apart_is_relieved_over_a_third_one() -> None:
    """Rack b has one broker, which must keep a replica of each partition of two replicas."""
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    before = _topic("t", (1, 3), (1, 3), (1, 3), (1, 3))
    placement = Placement(racks, before, {})
    balance_replicas(placement)
    assert [placement.count(broker) for broker in (1, 2, 3, 4)] == [2, 2, 2, 2]


def test_partition_with_more_replicas_than_brokers_is_named() -> None:
    placement = Placement({1: None, 2: None}, _topic("t", (1, 2, 3), (3,)), {})
    with pytest.raises(NotEnoughBrokers, match="replicas of t-0: 3 replicas need 3 brokers"):
        leave_brokers(placement, [3])
