"""ListOffsets: requests and responses as frames."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.helpers.sim.several_brokers import add_topic_elsewhere
from tests.helpers.sim.sim_broker import SimBroker, create_topic, produce_request, records_of
from tests.helpers.sim.sim_files import SimFile, SimFiles


def make(*timestamps: int) -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", 2)
    for timestamp in timestamps:
        broker.produce("t", records=records_of((b"v",), now_ms=timestamp))
    return broker


def request(*timestamps: int, topic: str = "t", epoch: int = -1) -> ListOffsetsRequest:
    """Request one partition for each timestamp."""
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=number, timestamp=timestamp, current_leader_epoch=epoch
                    )
                    for number, timestamp in enumerate(timestamps)
                ],
            )
        ],
    )


def ask(broker: SimBroker, timestamp: int, version: int = 11, **fields: Any) -> Any:
    answer = broker.ask(request(timestamp, **fields), version)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_latest_and_earliest_in_every_version(version: int) -> None:
    broker = make(100, 200)
    for timestamp, offset in ((-1, 2), (-2, 0)):
        answer = ask(broker, timestamp, version)
        assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, -1)
        assert answer.leader_epoch == (-1 if version < 4 else 0)


@pytest.mark.parametrize("version", range(1, 12))
def test_offset_is_found_by_time_in_every_version(version: int) -> None:
    answer = ask(make(100, 200), 150, version)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, 1, 200)


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(-3, 1), (-4, 0), (-5, -1), (-6, -1), (201, -1), (0, 0)]
)
def test_other_special_timestamps_and_missing_offsets(timestamp: int, offset: int) -> None:
    answer = ask(make(100, 200), timestamp)
    assert (answer.error_code, answer.offset) == (0, offset)


@pytest.mark.parametrize(
    ("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-(2**63), 11)]
)
def test_special_timestamp_of_a_newer_version_is_refused(timestamp: int, version: int) -> None:
    answer = ask(make(), timestamp, version)
    assert (answer.error_code, answer.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


def test_latest_is_the_high_watermark() -> None:
    broker = make(100)
    broker.begin(produce_request("t", b"unsafe"), 9)
    asked = broker.begin(request(-1), 11)
    assert asked.response().topics[0].partitions[0].offset == 1


def test_response_combines_immediate_and_waiting_lookups() -> None:
    broker = make(100)
    asked = broker.begin(request(50, -1), 11)
    assert not asked.is_done
    broker.settle()
    actual = [(p.partition_index, p.offset) for p in asked.response().topics[0].partitions]
    assert actual == [(0, 0), (1, 0)]


def test_lookups_of_a_disconnected_client_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = make(100)
    broker.ask(produce_request("t", b"v", partition=1), 9)
    opened: list[str] = []
    open_read = SimFiles.open_read

    def spy(files: SimFiles, path: str) -> SimFile:
        opened.append(path)
        return open_read(files, path)

    monkeypatch.setattr(SimFiles, "open_read", spy)
    asked = broker.begin(request(50, 50), 11)
    asked.cancel()
    broker.settle()
    assert opened == []
    assert ask(broker, 50).offset == 0
    assert opened


def test_each_partition_has_its_own_error() -> None:
    broker = make(100)
    answer = broker.ask(request(50, 50, -1), 11)
    actual = [(p.error_code, p.offset) for p in answer.topics[0].partitions]
    assert actual == [(0, 0), (0, -1), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_partition_deleted_during_look_up_has_its_own_error() -> None:
    broker = make(100)
    asked = broker.begin(request(50, -1), 11)
    broker.broker.replica_manager.partition("t", 0).leader = 9
    broker.settle()
    actual = [p.error_code for p in asked.response().topics[0].partitions]
    assert actual == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]


def test_partition_named_twice_is_refused_alone() -> None:
    broker = make(100)
    asked = request(-1, -1)
    asked.topics[0].partitions.append(ListOffsetsPartition(partition_index=0, timestamp=-2))
    answer = broker.ask(asked, 11)
    actual = [p.error_code for p in answer.topics[0].partitions]
    assert actual == [ErrorCode.INVALID_REQUEST, 0]


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (1, 0), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_leader_epoch_must_match(epoch: int, code: int) -> None:
    broker = make(100)
    broker.stop()
    again = broker.restart()
    assert ask(again, -1, epoch=epoch).error_code == code


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_offset_is_not_available_before_the_leader_knows_the_end(version: int, code: int) -> None:
    broker = make(100)
    broker.broker.replica_manager.partition("t", 0).epoch_start_offset = 9
    assert ask(broker, -1, version).error_code == code


def test_unknown_topic_is_an_error() -> None:
    assert ask(make(), -1, topic="nobody").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partition_on_another_broker_is_an_error_after_which_clients_find_the_leader() -> None:
    broker = make(100)
    add_topic_elsewhere(broker, "far", leader=2)
    not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(broker, -1, topic="far").error_code == not_leader
    assert broker.fetch("far").error_code == not_leader
    assert broker.produce("far", b"value").error_code == not_leader
    assert broker.fetch("far", partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.fetch("far", partition=-1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
