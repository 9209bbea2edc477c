"""OffsetDelete on a complete broker."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from tests.helpers.offsets import commit, delete, fetch
from tests.helpers.sim.sim_broker import SimBroker, create_topic


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", 3)
    return broker


def test_deleted_offset_does_not_return_after_restart(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1, ("t", 1): 2})
    answer = delete(broker, "g", [("t", 0), ("t", 2)])
    assert answer.error_code == 0
    assert [(one.partition_index, one.error_code) for one in answer.topics[0].partitions] == [
        (0, 0),
        (2, 0),
    ]
    assert fetch(broker, "g") == {("t", 1): 2}
    assert fetch(broker.restart(), "g") == {("t", 1): 2}


def test_missing_partitions_are_errors(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1})
    answer = delete(broker, "g", [("nobody", 0), ("t", 0), ("t", 3), ("t", -1)])
    actual = {
        (topic.name, one.partition_index): one.error_code
        for topic in answer.topics
        for one in topic.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert actual == {("nobody", 0): unknown, ("t", -1): unknown, ("t", 0): 0, ("t", 3): unknown}


@pytest.mark.parametrize(
    ("group", "code"), [("", ErrorCode.INVALID_GROUP_ID), ("g", ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_group_error_is_at_the_top_level(broker: SimBroker, group: str, code: int) -> None:
    answer = delete(broker, group, [("t", 0), ("nobody", 0)])
    assert (answer.error_code, answer.topics) == (code, [])
    assert broker.bugs == []


def test_partition_named_repeatedly_is_answered_once(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1})
    answer = delete(broker, "g", [("t", 0), ("t", 0)])
    assert [one.error_code for one in answer.topics[0].partitions] == [0]
    assert fetch(broker, "g") == {}
