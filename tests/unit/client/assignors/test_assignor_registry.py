"""Assignors by name."""

from __future__ import annotations

import pytest

from plog.client.assignors import RangeAssignor, StickyAssignor, assignors_from


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("range", "range"),
        ("RoundRobinAssignor", "roundrobin"),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "cooperative-sticky"),
        (StickyAssignor, "sticky"),
        (RangeAssignor(), "range"),
    ],
)
def test_assignor_is_found_by_name_class_or_instance(entry: object, name: str) -> None:
    [assignor] = assignors_from([entry])  # type: ignore[list-item]
    assert assignor.name == name


def test_each_member_has_its_own_assignors() -> None:
    [first], [second] = assignors_from(["sticky"]), assignors_from(["sticky"])
    assert first is not second


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (["stick"], "did you mean sticky"),
        (["x"], "known assignors: range"),
        (["range", "RangeAssignor"], "duplicate assignor"),
        ([], "at least one"),
    ],
)
def test_invalid_entries_are_named_in_the_error(strategy: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        assignors_from(strategy)
