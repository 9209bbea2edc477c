"""The replicas of a partition during a reassignment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plogd.controller.replica_assignment import ReplicaAssignment

REPLICAS = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True)


@pytest.mark.parametrize(
    ("present", "target", "expected"),
    [
        # The cases of KIP-455: move, grow, shrink, reorder.
        (([1, 2], [], []), [3, 4], ([3, 4, 1, 2], [3, 4], [1, 2])),
        (([1], [], []), [1, 2, 3], ([1, 2, 3], [2, 3], [])),
        (([1, 2, 3], [], []), [2], ([2, 1, 3], [], [1, 3])),
        (([1, 2], [], []), [2, 1], ([2, 1], [], [])),
        # Another target replaces the first one: broker 3 is no longer needed.
        (([3, 4, 1, 2], [3, 4], [1, 2]), [4, 5], ([4, 5, 1, 2], [4, 5], [1, 2])),
        # A cancellation returns to the origin.
        (([3, 4, 1, 2], [3, 4], [1, 2]), [1, 2], ([1, 2], [], [])),
    ],
)
def test_reassignment_keeps_the_origin_until_it_is_complete(
    present: tuple[list[int], list[int], list[int]],
    target: list[int],
    expected: tuple[list[int], list[int], list[int]],
) -> None:
    replicas, adding, removing = (tuple(one) for one in present)
    assignment = ReplicaAssignment(replicas=replicas, adding=adding, removing=removing)
    new = assignment.reassigned_to(target)
    assert (list(new.replicas), list(new.adding), list(new.removing)) == expected


@given(REPLICAS, REPLICAS, REPLICAS)
def test_origin_and_target_are_those_of_the_last_request(
    origin: list[int], first: list[int], second: list[int]
) -> None:
    assignment = ReplicaAssignment(replicas=tuple(origin))
    for target in (first, second):
        assignment = assignment.reassigned_to(target)
        assert assignment.target == tuple(target)
        assert set(assignment.origin) == set(origin)
        assert assignment.completed() == ReplicaAssignment(replicas=tuple(target))
    assert assignment.is_reassigning == (set(second) != set(origin))
    assert set(assignment.reassigned_to(assignment.origin).replicas) == set(origin)
