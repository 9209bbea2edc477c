"""DeleteRecords, from frame to frame."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.helpers.log_site import spied
from tests.helpers.sim_broker import Asked, SimBroker, create_topic
from tests.helpers.sim_files import SimCrash


def make(records: int = 5, **settings: Any) -> SimBroker:
    broker = SimBroker(**settings).start()
    create_topic(broker, "t", 2)
    for number in range(records):
        broker.produce("t", str(number).encode())
    return broker


def request(*asked: tuple[str, int, int], timeout_ms: int = 1000) -> DeleteRecordsRequest:
    """(topic, partition, offset) each in an entry of its own."""
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[DeleteRecordsPartition(partition_index=number, offset=offset)],
            )
            for topic, number, offset in asked
        ],
        timeout_ms=timeout_ms,
    )


def results(answer: Any) -> list[tuple[str, int, int, int]]:
    return [
        (topic.name, one.partition_index, one.low_watermark, one.error_code)
        for topic in answer.topics
        for one in topic.partitions
    ]


def delete(broker: SimBroker, offset: int, topic: str = "t") -> tuple[int, int]:
    """Low watermark and error of one partition."""
    [(_, _, low_watermark, error)] = results(broker.ask(request((topic, 0, offset)), 2))
    return low_watermark, error


def earliest(broker: SimBroker) -> int:
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-2)])
    answer = broker.ask(ListOffsetsRequest(topics=[asked]), 5)
    offset = answer.topics[0].partitions[0].offset
    assert isinstance(offset, int)
    return offset


@pytest.mark.parametrize("version", range(3))
def test_records_below_the_offset_are_gone_in_every_version(version: int) -> None:
    broker = make()
    assert results(broker.ask(request(("t", 0, 3)), version)) == [("t", 0, 3, 0)]
    assert broker.fetch("t", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    read = broker.fetch("t", 3)
    assert (read.error_code, read.log_start_offset, read.high_watermark) == (0, 3, 5)
    assert b"3" in bytes(read.records)
    assert earliest(broker) == 3


def test_minus_one_is_the_high_watermark() -> None:
    broker = make()
    assert delete(broker, -1) == (5, 0)
    assert earliest(broker) == 5
    assert broker.produce("t", b"next").base_offset == 5


def test_a_partition_that_begins_higher_already_stays_as_it_is() -> None:
    broker = make()
    assert delete(broker, 4) == (4, 0)
    assert delete(broker, 2) == (4, 0)
    assert earliest(broker) == 4


@pytest.mark.parametrize("offset", [6, -2, -(2**63), 2**63 - 1])
def test_an_offset_that_is_not_there_is_refused(offset: int) -> None:
    broker = make()
    assert delete(broker, offset) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert earliest(broker) == 0


def test_each_partition_has_its_own_outcome_under_its_topics_name() -> None:
    broker = make()
    answer = broker.ask(
        request(("t", 0, 2), ("nobody", 0, 1), ("t", 1, 0), ("t", 7, 0), ("t", 1, 0)), 2
    )
    assert results(answer) == [
        ("t", 0, 2, 0),
        ("t", 1, -1, ErrorCode.INVALID_REQUEST),
        ("t", 7, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nobody", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_a_request_for_nothing_is_answered_with_nothing() -> None:
    assert make().ask(DeleteRecordsRequest(), 2).topics == []


def test_a_compacted_topic_keeps_its_records_unless_it_deletes_too() -> None:
    broker = make()
    create_topic(broker, "compacted", cleanup_policy="compact")
    create_topic(broker, "both", cleanup_policy="compact,delete")
    assert delete(broker, -1, "compacted") == (-1, ErrorCode.POLICY_VIOLATION)
    assert delete(broker, -1, "both") == (0, 0)


def test_internal_topics_keep_their_records() -> None:
    broker = make()
    create_topic(broker, "__consumer_offsets")
    assert delete(broker, 0, "__consumer_offsets") == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_the_answer_waits_for_the_disk_and_readers_do_not() -> None:
    broker = make()
    asked = broker.begin(request(("t", 0, 3)), 2)
    assert not asked.is_done
    assert broker.fetch("t", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert results(asked.response()) == [("t", 0, 3, 0)]


def test_a_disk_gets_half_a_minute_whatever_the_request_says() -> None:
    broker = make()
    asked = broker.begin(request(("t", 0, 3), timeout_ms=0), 2)
    broker.ports.timers.advance(29_999)
    assert not asked.is_done
    broker.ports.timers.advance(1)
    assert results(asked.response()) == [("t", 0, -1, ErrorCode.REQUEST_TIMED_OUT)]
    broker.settle()
    assert delete(broker, 3) == (3, 0)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_does_not_take_it_is_told(number: int) -> None:
    broker = make()
    broker.files.fail_when(lambda operation: "log-start" in operation.path, number)
    assert delete(broker, 3) == (-1, ErrorCode.KAFKA_STORAGE_ERROR)


def test_a_full_disk_takes_it_the_second_time_if_there_is_room_then() -> None:
    broker = make()
    broker.files.fail_when(lambda operation: "log-start" in operation.path, errno.ENOSPC)
    delete(broker, 3)
    broker.files.fail_no_more()
    assert delete(broker, 3) == (3, 0)
    assert earliest(broker.restart(broker.files.crash(random.Random(1)))) == 3


def test_a_topic_deleted_meanwhile_is_not_told_of_as_if_it_were_there() -> None:
    broker = make()
    asked = broker.begin(request(("t", 0, 3)), 2)
    state = broker.broker.cache.topic("t")
    assert state is not None
    broker.broker.replica_manager.topics.stop_topic(state)
    broker.settle()
    assert results(asked.response()) == [("t", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_many_partitions_of_a_request_share_one_file() -> None:
    broker = make()
    broker.produce("t", b"a", partition=1)
    renames = spied(broker.files, "rename")
    broker.ask(request(("t", 0, 3), ("t", 1, 1)), 2)
    assert renames() == ["/data/log-start-offset-checkpoint.tmp"]


def _answered(asked: Asked | None) -> bool:
    return asked is not None and asked.is_done and results(asked.response()) == [("t", 0, 3, 0)]


def test_no_crash_at_any_file_operation_undoes_what_was_answered() -> None:
    whole = make()
    before = whole.files.operations
    delete(whole, 3)
    for number in range(before + 1, whole.files.operations + 2):
        broker = make()
        asked = None
        broker.files.crash_at(number)
        try:
            asked = broker.begin(request(("t", 0, 3)), 2)
            broker.settle()
        except SimCrash:
            pass
        is_answered = _answered(asked)
        for seed in range(4):
            again = broker.restart(broker.files.crash(random.Random(seed)))
            start = earliest(again)
            assert start in ({3} if is_answered else {0, 3})
            read = again.fetch("t", start)
            assert (read.high_watermark, bytes(read.records)[-2:-1]) == (5, b"4")
            again.stop()
    assert is_answered, "the last crash point lies behind the answer"
