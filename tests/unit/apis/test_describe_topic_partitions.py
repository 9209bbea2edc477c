"""DescribeTopicPartitions: requests and responses as frames, with pages and cursors."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.types import ZERO_UUID
from plog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
)
from plogd.apis.metadata import TOPIC_OPERATIONS
from tests.helpers.sim.several_brokers import add_brokers, live_broker, set_partition
from tests.helpers.sim.sim_broker import SimBroker, create_topic

PLACES = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]


def make(**settings: Any) -> SimBroker:
    broker = SimBroker(auto_create_topics_enable=False, **settings).start()
    for name, partitions in (("b", 2), ("c", 1), ("a", 3)):
        create_topic(broker, name, partitions)
    return broker


def ask(
    broker: SimBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribedTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return broker.ask(request, 0)


def places(answer: Any) -> list[tuple[str, int]]:
    return [
        (topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions
    ]


def cursor_of(answer: Any) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_topic_is_described_completely() -> None:
    broker = make()
    [topic] = ask(broker, "c").topics
    state = broker.broker.cache.topic("c")
    assert state is not None
    assert (topic.error_code, topic.name, topic.topic_id) == (0, "c", state.topic_id)
    assert (topic.is_internal, topic.topic_authorized_operations) == (False, TOPIC_OPERATIONS)
    [one] = topic.partitions
    assert (one.error_code, one.leader_id, one.leader_epoch) == (0, 1, 0)
    assert (one.replica_nodes, one.isr_nodes, one.offline_replicas) == ([1], [1], [])
    assert (one.eligible_leader_replicas, one.last_known_elr) == ([], [])


def test_no_names_mean_all_topics_in_order() -> None:
    answer = ask(make())
    assert (places(answer), cursor_of(answer)) == (PLACES, None)


@pytest.mark.parametrize("limit", range(1, 8))
def test_pages_together_contain_all_partitions(limit: int) -> None:
    broker = make()
    paged, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        answer = ask(broker, limit=limit, cursor=cursor)
        assert len(places(answer)) <= limit
        paged += places(answer)
        cursor, pages = cursor_of(answer), pages + 1
    assert paged == PLACES
    assert pages == -(-len(PLACES) // limit)


def test_cursor_names_next_topic_when_page_ends_with_a_topic() -> None:
    assert cursor_of(ask(make(), limit=3)) == ("b", 0)
    assert cursor_of(ask(make(), limit=4)) == ("b", 1)


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
def test_page_has_at_least_one_partition(limit: int) -> None:
    assert places(ask(make(), limit=limit)) == [("a", 0)]


def test_broker_setting_limits_the_page() -> None:
    answer = ask(make(max_request_partition_size_limit=2))
    assert (places(answer), cursor_of(answer)) == (PLACES[:2], ("a", 2))


def test_named_topics_appear_once_and_missing_ones_have_an_error() -> None:
    answer = ask(make(), "c", "nobody", "c", "no/slash", "a")
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", 0),
        ("c", 0),
        ("no/slash", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert {topic.topic_id == ZERO_UUID for topic in answer.topics[2:]} == {True}


def test_cursor_at_missing_topic_continues_with_the_next_topic() -> None:
    assert places(ask(make(), cursor=("aa", 1))) == PLACES[3:]


def test_cursor_after_last_partition_continues_with_the_next_topic() -> None:
    assert places(ask(make(), cursor=("a", 99))) == PLACES[3:]


@pytest.mark.parametrize(
    ("names", "cursor", "expected"),
    [(("a", "b"), ("c", 0), ["a", "b"]), (("a",), ("a", -1), ["a"]), ((), ("b", -1), ["b"])],
)
def test_invalid_cursor_is_refused(
    names: tuple[str, ...], cursor: tuple[str, int], expected: list[str]
) -> None:
    answer = ask(make(), *names, cursor=cursor)
    assert [topic.name for topic in answer.topics] == expected
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}


def test_partition_of_failed_directory_has_no_leader() -> None:
    broker = make()
    broker.broker.log_manager.storage_failed("/data", OSError(errno.EIO, "broken"))
    [topic] = ask(broker, "c").topics
    [one] = topic.partitions
    assert (one.error_code, one.leader_id, one.offline_replicas) == (0, -1, [1])


def test_partition_has_a_leader_only_if_clients_can_reach_it() -> None:
    broker = make()
    add_brokers(broker, live_broker(2, "PLAINTEXT"), live_broker(3, "INSIDE"))
    expected = {2: (0, 2, [4]), 3: (0, -1, [4]), 4: (0, -1, [4]), -1: (0, -1, [4])}
    for leader, described in expected.items():
        set_partition(broker, "c", leader=leader, replicas=(4, 3, 2))
        [one] = ask(broker, "c").topics[0].partitions
        assert (one.error_code, one.leader_id, one.offline_replicas) == described
        assert one.replica_nodes == [4, 3, 2]
