"""plog/balance/leader_plan.py: what is true of every plan, and simple cases."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plog.balance.leader_plan import Leaders, changed, leader_counts
from plog.types import TopicPartition
from tests.unit.balance.clusters import SomeCluster, clusters, spread


def _any(partition: TopicPartition, broker: int) -> bool:
    return True


def _topic(name: str, *replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(name, number): each for number, each in enumerate(replicas)}


@given(clusters())
def test_balance_changes_only_the_order_of_replicas(cluster: SomeCluster) -> None:
    leaders = Leaders(sorted(cluster.racks), cluster.assignments)
    leaders.balance(_any)
    for partition, replicas in leaders.replicas.items():
        assert sorted(replicas) == sorted(cluster.assignments[partition])


@given(clusters())
def test_balanced_leaders_do_not_change(cluster: SomeCluster) -> None:
    leaders = Leaders(sorted(cluster.racks), cluster.assignments)
    leaders.balance(_any)
    again = Leaders(sorted(cluster.racks), leaders.replicas)
    again.balance(_any)
    assert changed(leaders.replicas, again.replicas) == {}


@given(clusters())
def test_leaders_are_balanced_if_every_broker_has_all_replicas(cluster: SomeCluster) -> None:
    every = {one: sorted(cluster.racks) for one in cluster.assignments}
    leaders = Leaders(sorted(cluster.racks), every)
    leaders.balance(_any)
    counts = leader_counts(leaders.replicas)
    assert spread(counts[broker] for broker in cluster.racks) <= 1


@given(clusters(), st.data())
def test_broker_leads_nothing_that_another_replica_can_lead_after_it_is_left(
    cluster: SomeCluster, data: st.DataObject
) -> None:
    broker = data.draw(st.sampled_from(sorted(cluster.racks)))
    leaders = Leaders(sorted(cluster.racks), cluster.assignments)
    stuck = leaders.leave(broker, _any)
    led = [one for one, replicas in leaders.replicas.items() if replicas[0] == broker]
    assert sorted(led) == sorted(stuck)
    assert all(len(leaders.replicas[partition]) == 1 for partition in led)
    for partition, replicas in changed(cluster.assignments, leaders.replicas).items():
        assert cluster.assignments[partition][0] == replicas[-1] == broker


def test_leaders_move_over_a_third_broker_if_no_replica_is_shared() -> None:
    before = _topic("t", (1, 2), (1, 2), (1, 2), (2, 3), (2, 3))
    leaders = Leaders([1, 2, 3], before)
    leaders.balance(_any)
    assert sorted(leader_counts(leaders.replicas).values()) == [1, 2, 2]


def test_leader_does_not_move_to_a_replica_that_cannot_lead() -> None:
    leaders = Leaders([1, 2], _topic("t", (1, 2), (1, 2)))
    leaders.balance(lambda partition, broker: broker == 1)
    assert leader_counts(leaders.replicas) == {1: 2}


def test_only_the_given_broker_gets_leaders_up_to_its_share() -> None:
    before = _topic("t", *[(1, 2, 3)] * 6)
    leaders = Leaders([1, 2, 3], before)
    leaders.balance(_any, only_to=[2])
    assert leader_counts(leaders.replicas) == {1: 4, 2: 2}


def test_broker_that_is_left_comes_last_in_the_list() -> None:
    leaders = Leaders([1, 2, 3], _topic("t", (1, 2, 3)))
    assert leaders.leave(1, _any) == []
    assert leaders.replicas == {TopicPartition("t", 0): [2, 3, 1]}
