"""OffsetForLeaderEpoch: requests and responses as frames."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.helpers.sim.sim_broker import SimBroker, create_topic


def make() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t")
    return broker


def ask(
    broker: SimBroker,
    leader_epoch: int,
    *,
    current: int = -1,
    topic: str = "t",
    partition: int = 0,
    version: int = 4,
) -> tuple[int, int, int]:
    """Return the error code, the epoch and the end offset."""
    asked = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=leader_epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    [result] = broker.ask(request, version).topics
    [one] = result.partitions
    assert (result.topic, one.partition) == (topic, partition)
    return one.error_code, one.leader_epoch, one.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_current_epoch_ends_at_the_log_end(version: int) -> None:
    broker = make()
    assert ask(broker, 0, version=version) == (0, 0, 0)
    broker.produce("t", b"a", b"b")
    assert ask(broker, 0, version=version) == (0, 0, 2)


def lives(*counts: int) -> SimBroker:
    """Return a broker that was started once per count and appended that many records each time."""
    broker = make()
    for number, count in enumerate(counts):
        broker = broker.restart() if number else broker
        for _ in range(count):
            broker.produce("t", b"a")
    return broker


@pytest.mark.parametrize(
    ("leader_epoch", "expected"),
    [
        (0, (0, 0, 2)),
        (1, (0, 0, 2)),  # It has no records, so the epoch before it ends there.
        (2, (0, 2, 5)),
        (3, (0, 3, 5)),  # The current epoch, which has no records yet.
        (4, (0, -1, -1)),
        (-1, (0, -1, -1)),
    ],
)
def test_older_epoch_ends_where_the_next_starts(
    leader_epoch: int, expected: tuple[int, int, int]
) -> None:
    assert ask(lives(2, 0, 3, 0), leader_epoch) == expected


def test_epochs_of_an_empty_log_end_at_its_start() -> None:
    broker = lives(0, 0, 0)
    assert [ask(broker, epoch) for epoch in (0, 1, 2, 3)] == [
        (0, 0, 0),
        (0, 1, 0),
        (0, 2, 0),
        (0, -1, -1),
    ]


def test_client_with_another_leader_epoch_gets_an_error() -> None:
    broker = lives(1, 1)
    assert ask(broker, 0, current=1) == (0, 0, 1)
    assert ask(broker, 0, current=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert ask(broker, 0, current=2) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


def test_missing_partition_is_an_error() -> None:
    broker = make()
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert ask(broker, 0, topic="nobody") == unknown
    assert ask(broker, 0, partition=1) == unknown
    assert ask(broker, 0, partition=-1) == unknown
    broker.broker.log_manager.storage_failed("/data", OSError(errno.EIO, "broken"))
    assert ask(broker, 0) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)


def test_partitions_are_answered_in_the_order_requested() -> None:
    broker = make()
    create_topic(broker, "u", 2)
    topics: list[Any] = [
        OffsetForLeaderTopic(
            topic=name,
            partitions=[OffsetForLeaderPartition(partition=n, leader_epoch=0) for n in numbers],
        )
        for name, numbers in (("u", (1, 0)), ("t", (0,)))
    ]
    answer = broker.ask(OffsetForLeaderEpochRequest(topics=topics), 4)
    actual = [(topic.topic, [one.partition for one in topic.partitions]) for topic in answer.topics]
    assert actual == [("u", [1, 0]), ("t", [0])]
