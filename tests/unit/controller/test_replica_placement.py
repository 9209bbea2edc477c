"""Placement of replicas on brokers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from plogd.controller.replica_placement import assign_replicas, check_assignments


def test_single_broker_holds_all_partitions() -> None:
    assert assign_replicas([7], 3, 1) == {0: (7,), 1: (7,), 2: (7,)}


@given(brokers=st.integers(1, 9), partitions=st.integers(1, 50), data=st.data())
def test_leaders_are_spread_evenly_and_replicas_differ(
    brokers: int, partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, brokers))
    start = data.draw(st.integers(0, 20))
    assigned = assign_replicas(range(brokers), partitions, factor, start=start)
    leaders = [replicas[0] for replicas in assigned.values()]
    counts = [leaders.count(broker) for broker in range(brokers)]
    assert max(counts) - min(counts) <= 1
    assert all(len(set(replicas)) == factor for replicas in assigned.values())


def test_followers_differ_in_each_round() -> None:
    assigned = assign_replicas([1, 2, 3, 4], 12, 2)
    followers = {replicas[1] for replicas in assigned.values() if replicas[0] == 1}
    assert followers == {2, 3, 4}


def test_first_leader_and_first_follower_are_those_requested() -> None:
    assigned = assign_replicas([1, 2, 3, 4], 1, 2, start=2, shift=1)
    assert assigned == {0: (3, 1)}


def test_replicas_alternate_between_racks() -> None:
    # The example in Kafka's documentation of AdminUtils.
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert assign_replicas(range(6), 7, 3, racks=racks) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


@given(racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=9), data=st.data())
def test_replicas_are_in_as_many_racks_as_possible(racks: list[str], data: st.DataObject) -> None:
    rack_of = dict(enumerate(racks))
    factor = data.draw(st.integers(1, len(racks)))
    start, shift, first = (data.draw(st.integers(0, 20)) for _ in range(3))
    assigned = assign_replicas(
        range(len(racks)),
        40,
        factor,
        racks=rack_of,
        start=start,
        shift=shift,
        first_partition=first,
    )
    assert list(assigned) == list(range(first, first + 40))
    leaders = [replicas[0] for replicas in assigned.values()]
    counts = [leaders.count(broker) for broker in rack_of]
    assert max(counts) - min(counts) <= 1
    for replicas in assigned.values():
        assert len(set(replicas)) == factor
        assert len({rack_of[one] for one in replicas}) == min(factor, len(set(racks)))


def test_replicas_are_not_placed_if_only_some_brokers_have_racks() -> None:
    with pytest.raises(InvalidReplicaAssignment, match=r"brokers \[2, 3\] have no rack"):
        assign_replicas([1, 2, 3], 1, 1, racks={1: "a"})


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(InvalidReplicationFactor, match="only 1 broker"):
        assign_replicas([1], 1, 3)


def test_manual_assignment_is_sorted_by_partition() -> None:
    assert check_assignments([(1, [2, 1]), (0, [1, 2])], [1, 2]) == {0: (1, 2), 1: (2, 1)}


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        ([(0, [1]), (0, [1])], "more than once"),
        ([(0, [1]), (2, [1])], "without gaps"),
        ([(1, [1])], "without gaps"),
        ([(0, [])], "no replicas"),
        ([(0, [1, 1])], "twice"),
        ([(0, [1, 9])], r"unknown brokers: \[9\]"),
        ([(0, [1]), (1, [1, 2])], "different numbers"),
    ],
)
def test_invalid_manual_assignment_is_refused(
    assignments: list[tuple[int, list[int]]], problem: str
) -> None:
    with pytest.raises(InvalidReplicaAssignment, match=problem):
        check_assignments(assignments, [1, 2])
