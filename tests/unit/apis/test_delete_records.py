"""DeleteRecords: requests and responses as frames."""

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
from tests.helpers.log.log_site import spied
from tests.helpers.sim.sim_broker import Asked, SimBroker, create_topic
from tests.helpers.sim.sim_files import SimCrash


def make(records: int = 5, **settings: Any) -> SimBroker:
    broker = SimBroker(**settings).start()
    create_topic(broker, "t", 2)
    for number in range(records):
        broker.produce("t", str(number).encode())
    return broker


def request(*asked: tuple[str, int, int], timeout_ms: int = 1000) -> DeleteRecordsRequest:
    """Return a request with a separate element for each (topic, partition, offset)."""
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
    """Delete records of one partition; return its low watermark and error code."""
    [(_, _, low_watermark, error)] = results(broker.ask(request((topic, 0, offset)), 2))
    return low_watermark, error


def earliest(broker: SimBroker) -> int:
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-2)])
    answer = broker.ask(ListOffsetsRequest(topics=[asked]), 5)
    offset = answer.topics[0].partitions[0].offset
    assert isinstance(offset, int)
    return offset


@pytest.mark.parametrize("version", range(3))
def test_records_before_the_offset_are_deleted_in_every_version(version: int) -> None:
    broker = make()
    assert results(broker.ask(request(("t", 0, 3)), version)) == [("t", 0, 3, 0)]
    assert broker.fetch("t", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    read = broker.fetch("t", 3)
    assert (read.error_code, read.log_start_offset, read.high_watermark) == (0, 3, 5)
    assert b"3" in bytes(read.records)
    assert earliest(broker) == 3


def test_offset_minus_one_is_the_high_watermark() -> None:
    broker = make()
    assert delete(broker, -1) == (5, 0)
    assert earliest(broker) == 5
    assert broker.produce("t", b"next").base_offset == 5


def test_partition_with_higher_log_start_is_unchanged() -> None:
    broker = make()
    assert delete(broker, 4) == (4, 0)
    assert delete(broker, 2) == (4, 0)
    assert earliest(broker) == 4


@pytest.mark.parametrize("offset", [6, -2, -(2**63), 2**63 - 1])
def test_offset_out_of_range_is_refused(offset: int) -> None:
    broker = make()
    assert delete(broker, offset) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert earliest(broker) == 0


def test_each_partition_has_its_own_outcome() -> None:
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


def test_empty_request_has_empty_response() -> None:
    assert make().ask(DeleteRecordsRequest(), 2).topics == []


def test_compacted_topic_keeps_records_unless_policy_includes_delete() -> None:
    broker = make()
    create_topic(broker, "compacted", cleanup_policy="compact")
    create_topic(broker, "both", cleanup_policy="compact,delete")
    assert delete(broker, -1, "compacted") == (-1, ErrorCode.POLICY_VIOLATION)
    assert delete(broker, -1, "both") == (0, 0)


def test_internal_topics_keep_their_records() -> None:
    broker = make()
    create_topic(broker, "__consumer_offsets")
    assert delete(broker, 0, "__consumer_offsets") == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_response_waits_for_the_disk_and_readers_do_not() -> None:
    broker = make()
    asked = broker.begin(request(("t", 0, 3)), 2)
    assert not asked.is_done
    assert broker.fetch("t", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert results(asked.response()) == [("t", 0, 3, 0)]


def test_disk_has_half_a_minute_when_timeout_is_shorter() -> None:
    broker = make()
    asked = broker.begin(request(("t", 0, 3), timeout_ms=0), 2)
    broker.ports.timers.advance(29_999)
    assert not asked.is_done
    broker.ports.timers.advance(1)
    assert results(asked.response()) == [("t", 0, -1, ErrorCode.REQUEST_TIMED_OUT)]
    broker.settle()
    assert delete(broker, 3) == (3, 0)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_failed_disk_is_reported(number: int) -> None:
    broker = make()
    broker.files.fail_when(lambda operation: "log-start" in operation.path, number)
    assert delete(broker, 3) == (-1, ErrorCode.KAFKA_STORAGE_ERROR)


def test_deletion_on_full_disk_succeeds_after_space_is_freed() -> None:
    broker = make()
    broker.files.fail_when(lambda operation: "log-start" in operation.path, errno.ENOSPC)
    delete(broker, 3)
    broker.files.fail_no_more()
    assert delete(broker, 3) == (3, 0)
    assert earliest(broker.restart(broker.files.crash(random.Random(1)))) == 3


def test_topic_deleted_concurrently_is_an_error() -> None:
    broker = make()
    asked = broker.begin(request(("t", 0, 3)), 2)
    state = broker.broker.cache.topic("t")
    assert state is not None
    broker.broker.replica_manager.topics.stop_topic(state)
    broker.settle()
    assert results(asked.response()) == [("t", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_partitions_of_a_request_share_one_checkpoint_write() -> None:
    broker = make()
    broker.produce("t", b"a", partition=1)
    renames = spied(broker.files, "rename")
    broker.ask(request(("t", 0, 3), ("t", 1, 1)), 2)
    assert renames() == ["/data/log-start-offset-checkpoint.tmp"]


def _answered(asked: Asked | None) -> bool:
    return asked is not None and asked.is_done and results(asked.response()) == [("t", 0, 3, 0)]


def test_crash_at_any_file_operation_keeps_answered_deletions() -> None:
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
    assert is_answered, "the last crash point is not after the response"
