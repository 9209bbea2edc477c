"""DescribeProducers: requests and responses as frames."""

from __future__ import annotations

import errno
from typing import Any

from plog.errors import ErrorCode
from plog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.helpers.sim.sim_broker import SimBroker, create_topic
from tests.helpers.sim.sim_time import START_MS


def make() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", 2)
    return broker


def ask(broker: SimBroker, *partitions: int, topic: str = "t") -> list[Any]:
    asked = TopicRequest(name=topic, partition_indexes=list(partitions))
    [result] = broker.ask(DescribeProducersRequest(topics=[asked]), 0).topics
    assert result.name == topic
    assert [one.partition_index for one in result.partitions] == list(partitions)
    return list(result.partitions)


def test_producers_are_described_by_partition() -> None:
    broker = make()
    broker.produce("t", b"a", b"b", producer_id=5, producer_epoch=1, base_sequence=0)
    broker.produce("t", b"c", producer_id=5, producer_epoch=1, base_sequence=2)
    broker.produce("t", b"d", producer_id=9, producer_epoch=0, base_sequence=0)
    broker.produce("t", b"nobody in particular")
    first, second = ask(broker, 0, 1)
    actual = [
        (one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp)
        for one in first.active_producers
    ]
    assert actual == [(5, 1, 2, START_MS), (9, 0, 0, START_MS)]
    assert {one.current_txn_start_offset for one in first.active_producers} == {-1}
    assert {one.coordinator_epoch for one in first.active_producers} == {-1}
    assert (second.error_code, second.active_producers) == (0, [])


def test_producers_are_known_after_a_restart() -> None:
    broker = make()
    broker.produce("t", b"a", producer_id=5, producer_epoch=1, base_sequence=0)
    [result] = ask(broker.restart(), 0)
    assert [one.producer_id for one in result.active_producers] == [5]


def test_partition_that_cannot_be_described_has_an_error() -> None:
    broker = make()
    assert ask(broker, 2)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(broker, 0, topic="u")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    [wrong] = ask(broker, 0, topic="no/slash")
    assert wrong.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "Topic name is invalid" in wrong.error_message
    broker.broker.log_manager.storage_failed("/data", OSError(errno.EIO, "broken"))
    assert ask(broker, 0)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
