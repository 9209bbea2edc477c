"""The checker of real faults finds each anomaly."""

from __future__ import annotations

import pytest

from tests.cluster.faults.history import History, value_of

ONE, TWO, THREE = (value_of("p", number) for number in range(3))


@pytest.fixture
def history() -> History:
    """Two acknowledged records."""
    history = History()
    history.acknowledged(0, 0, ONE)
    history.acknowledged(0, 1, TWO)
    return history


def test_complete_log_has_no_anomaly(history: History) -> None:
    history.read(0, 1, TWO)
    history.committed("g", 0, 2)
    history.fetched_commit("g", 0, 2)
    # A record without a response may be in the log.
    assert history.check({0: [(0, ONE), (1, TWO), (2, THREE)]}) == []
    assert history.counts == {"acknowledged": 2, "read": 1, "commits": 1}


def test_missing_record_is_lost(history: History) -> None:
    [problem] = history.check({0: [(0, ONE)]})
    assert problem == "lost record: b'p-1' was acknowledged at offset 1 of partition 0"


def test_record_at_another_offset_is_lost(history: History) -> None:
    [problem] = history.check({0: [(0, ONE), (2, TWO)]})
    assert problem.startswith("lost record: b'p-1'")


def test_two_records_at_an_offset_are_found(history: History) -> None:
    history.read(0, 1, THREE)
    [problem] = history.check({0: [(0, ONE), (1, TWO)]})
    assert problem == "two records at offset 1 of partition 0: b'p-1' and b'p-2'"


def test_repeated_record_is_found(history: History) -> None:
    [problem] = history.check({0: [(0, ONE), (1, TWO), (2, TWO)]})
    assert problem == "wrong order in partition 0: b'p-1' follows number 1"


def test_repeated_offset_is_found(history: History) -> None:
    [problem] = history.check({0: [(0, ONE), (1, TWO), (1, THREE)]})
    assert problem == "offset 1 of partition 0 follows 1"


def test_lost_commit_is_found(history: History) -> None:
    history.committed("g", 0, 2)
    history.fetched_commit("g", 0, 1)
    [problem] = history.check({0: [(0, ONE), (1, TWO)]})
    assert problem.startswith("lost commit: g has the committed offset 1 in partition 0, but 2")
