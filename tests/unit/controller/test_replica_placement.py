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
