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
def test_an_assignor_is_known_by_kafkas_names_or_is_given_itself(entry: object, name: str) -> None:
    [assignor] = assignors_from([entry])  # type: ignore[list-item]
    assert assignor.name == name


def test_each_member_has_assignors_of_its_own() -> None:
    [first], [second] = assignors_from(["sticky"]), assignors_from(["sticky"])
    assert first is not second


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (["stick"], "did you mean sticky"),
        (["x"], "known are range"),
        (["range", "RangeAssignor"], "twice"),
        ([], "at least one"),
    ],
)
def test_what_is_wrong_is_named(strategy: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        assignors_from(strategy)
