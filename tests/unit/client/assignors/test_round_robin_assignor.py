"""RoundRobinAssignor on the examples of Kafka's documentation."""

from __future__ import annotations

from plog.client.assignors import RoundRobinAssignor
from tests.unit.client.assignors.shares import divided, wants


def test_partitions_of_all_topics_are_assigned_in_turn() -> None:
    members = {"c0": wants("t0", "t1"), "c1": wants("t0", "t1")}
    shares = divided(RoundRobinAssignor(), {"t0": 3, "t1": 3}, members)
    assert shares == {"c0": ["t0-0", "t0-2", "t1-1"], "c1": ["t0-1", "t1-0", "t1-2"]}


def test_members_without_the_topic_are_skipped() -> None:
    members = {"c0": wants("t0"), "c1": wants("t0", "t1"), "c2": wants("t0", "t1", "t2")}
    shares = divided(RoundRobinAssignor(), {"t0": 1, "t1": 2, "t2": 3}, members)
    assert shares == {"c0": ["t0-0"], "c1": ["t1-0"], "c2": ["t1-1", "t2-0", "t2-1", "t2-2"]}


def test_static_members_come_first() -> None:
    members = {"a": wants("t"), "b": wants("t", instance="i")}
    assert divided(RoundRobinAssignor(), {"t": 2}, members) == {"b": ["t-0"], "a": ["t-1"]}
