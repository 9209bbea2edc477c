"""RangeAssignor on the examples of Kafka's documentation, and special cases."""

from __future__ import annotations

from plog.client.assignors import RangeAssignor
from tests.unit.client.assignors.shares import divided, wants


def test_each_topic_is_divided_into_ranges_first_ones_longer() -> None:
    members = {"c0": wants("t0", "t1"), "c1": wants("t0", "t1")}
    shares = divided(RangeAssignor(), {"t0": 3, "t1": 3}, members)
    assert shares == {"c0": ["t0-0", "t0-1", "t1-0", "t1-1"], "c1": ["t0-2", "t1-2"]}


def test_only_subscribers_share_a_topic() -> None:
    members = {"a": wants("t"), "b": wants("t", "u"), "c": wants("u")}
    shares = divided(RangeAssignor(), {"t": 3, "u": 1}, members)
    assert shares == {"a": ["t-0", "t-1"], "b": ["t-2", "u-0"], "c": []}


def test_missing_topics_are_not_assigned() -> None:
    assert divided(RangeAssignor(), {}, {"a": wants("t")}) == {"a": []}


def test_static_members_come_first_by_their_instance_ids() -> None:
    members = {"z": wants("t", instance="1"), "a": wants("t"), "b": wants("t", instance="2")}
    shares = divided(RangeAssignor(), {"t": 3}, members)
    assert shares == {"z": ["t-0"], "b": ["t-1"], "a": ["t-2"]}
