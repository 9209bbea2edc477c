"""Produce: requests and responses as frames."""

from __future__ import annotations

import dataclasses
import errno
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.records.batch import Compression
from plog.types import ZERO_UUID
from plog.wire.header import RequestHeader, encode_request
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from plogd.apis.dispatch import CloseConnection
from plogd.ports import Later
from tests.helpers.sim.sim_broker import (
    LOG_DIR,
    SimBroker,
    create_topic,
    fetch_request,
    produce_request,
    records_of,
)


def make(**config: Any) -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", 2, **config)
    return broker


def id_of(broker: SimBroker, topic: str) -> bytes:
    state = broker.broker.cache.topic(topic)
    assert state is not None
    return state.topic_id


@pytest.mark.parametrize("version", range(3, 14))
def test_records_get_their_offsets_in_every_version(version: int) -> None:
    broker = make()
    broker.produce("t", b"before")
    request = produce_request("t", b"a", b"b")
    request.topic_data[0].topic_id = id_of(broker, "t")
    answer = broker.ask(request, version)
    [topic] = answer.responses
    assert topic.name == ("t" if version < 13 else "")
    assert topic.topic_id == (ZERO_UUID if version < 13 else id_of(broker, "t"))
    [partition] = topic.partition_responses
    assert (partition.error_code, partition.base_offset, partition.log_append_time_ms) == (0, 1, -1)
    assert partition.log_start_offset == (-1 if version < 5 else 0)
    assert answer.throttle_time_ms == 0
    assert b"b" in broker.fetch("t", 1).records.tobytes()


@pytest.mark.parametrize("acks", [1, -1])
def test_response_waits_for_the_disk(acks: int) -> None:
    broker = make()
    asked = broker.begin(produce_request("t", b"a", acks=acks), 9)
    assert not asked.is_done
    broker.settle()
    assert asked.response().responses[0].partition_responses[0].error_code == 0


def test_pipelined_requests_share_one_sync() -> None:
    broker = make()
    rounds = next(iter(broker.broker.log_manager.sync_rounds))
    before = rounds.rounds
    with broker.ports.turn:
        asked = [broker.begin(produce_request("t", b"%d" % n), 9) for n in range(10)]
    broker.settle()
    assert all(one.is_done for one in asked)
    assert rounds.rounds == before + 1


def test_partitions_are_answered_in_order_with_their_own_outcomes() -> None:
    broker = make()
    good = records_of((b"a",))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="nobody", partition_data=[PartitionProduceData(index=0, records=good)]
            ),
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=1, records=good),
                    PartitionProduceData(index=5, records=good),
                    PartitionProduceData(index=0, records=None),
                    PartitionProduceData(index=0, records=good),
                ],
            ),
        ],
    )
    answer = broker.ask(request, 9)
    actual = [
        (topic.name, partition.index, partition.error_code, partition.base_offset)
        for topic in answer.responses
        for partition in topic.partition_responses
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert actual == [
        ("nobody", 0, unknown, -1),
        ("t", 1, 0, 0),
        ("t", 5, unknown, -1),
        ("t", 0, ErrorCode.INVALID_RECORD, -1),
        ("t", 0, 0, 0),
    ]


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


def refused(broker: SimBroker, records: bytes | None, version: int = 9) -> PartitionProduceResponse:
    """Return the response to an invalid request, after checking that nothing was appended."""
    request = produce_request("t", records=records or b"")
    request.topic_data[0].partition_data[0].records = records
    answer: PartitionProduceResponse = (
        broker.ask(request, version).responses[0].partition_responses[0]
    )
    assert broker.log("t").log_end_offset == 0
    assert answer.base_offset == -1
    assert broker.bugs == []
    return answer


class TestRefusedBatches:
    """Invalid batches are not appended, and the client gets the reason."""

    @pytest.mark.parametrize(
        ("records", "code"),
        [
            (None, ErrorCode.INVALID_RECORD),
            (b"", ErrorCode.INVALID_RECORD),
            (b"x", ErrorCode.CORRUPT_MESSAGE),
            (flipped(records_of((b"a",)), 65), ErrorCode.CORRUPT_MESSAGE),
            (records_of((b"a",))[:-1], ErrorCode.CORRUPT_MESSAGE),
            (records_of((b"a",)) * 2, ErrorCode.INVALID_RECORD),
            (bytes(16) + b"\1" + bytes(60), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
            (records_of((b"a",), is_control=True), ErrorCode.INVALID_RECORD),
            (
                records_of(
                    (b"a",),
                    is_transactional=True,
                    producer_id=1,
                    producer_epoch=0,
                    base_sequence=0,
                ),
                ErrorCode.INVALID_TXN_STATE,
            ),
        ],
        ids=["null", "empty", "short", "crc", "cut", "two", "magic 1", "control", "transactional"],
    )
    def test_invalid_batch_is_refused(self, records: bytes | None, code: ErrorCode) -> None:
        answer = refused(make(), records)
        assert (answer.error_code, bool(answer.error_message)) == (code, True)

    def test_batch_larger_than_max_message_bytes_is_refused(self) -> None:
        broker = make(max_message_bytes="100")
        answer = refused(broker, records_of((b"a" * 200,)))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE

    def test_record_without_key_is_refused_on_a_compacted_topic(self) -> None:
        answer = refused(make(cleanup_policy="compact"), records_of((b"a",)))
        assert answer.error_code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize(("version", "code"), [(6, 76), (7, 0)])
    def test_zstd_is_refused_for_old_versions(self, version: int, code: int) -> None:
        broker = make()
        records = records_of((b"a",), compression=Compression.ZSTD)
        answer = broker.ask(produce_request("t", records=records), version)
        assert answer.responses[0].partition_responses[0].error_code == code

    def test_error_has_a_message_from_version_8(self) -> None:
        assert refused(make(), b"x", 7).error_message is None
        assert refused(make(), b"x", 8).error_message is not None


class TestAcks:
    """The values -1, 0 and 1 of acks."""

    @pytest.mark.parametrize("acks", [2, -2, 32767])
    def test_other_acks_are_refused(self, acks: int) -> None:
        broker = make()
        answer = broker.produce("t", b"a", acks=acks)
        assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert broker.log("t").log_end_offset == 0

    def test_acks_0_gets_no_response(self) -> None:
        broker = make()
        assert broker.begin(produce_request("t", b"a", acks=0), 9).parts() is None
        assert broker.log("t").log_end_offset == 1

    @pytest.mark.parametrize("topic", ["t", "nobody"])
    def test_acks_0_with_an_error_closes_the_connection(self, topic: str) -> None:
        broker = make()
        with pytest.raises(CloseConnection, match="acks=0"):
            broker.begin(produce_request(topic, records=b"x" * 80, acks=0), 9)

    def test_acks_0_that_waits_for_memory_gets_no_response(self) -> None:
        broker = SimBroker(plog_unsynced_max_bytes=10).start()
        create_topic(broker, "t")
        broker.begin(produce_request("t", b"a"), 9)
        asked = broker.begin(produce_request("t", b"b", acks=0), 9)
        assert not asked.is_done
        broker.settle()
        assert asked.parts() is None
        assert broker.log("t").log_end_offset == 2

    def test_acks_all_times_out(self) -> None:
        broker = make()
        asked = broker.begin(produce_request("t", b"a", acks=-1, timeout_ms=100), 9)
        broker.ports.timers.advance(200)
        answer = asked.response().responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert broker.log("t").log_end_offset == 1

    def test_acks_1_waits_for_the_disk_beyond_a_short_timeout(self) -> None:
        broker = make()
        asked = broker.begin(produce_request("t", b"a", acks=1, timeout_ms=100), 9)
        broker.ports.timers.advance(200)
        assert not asked.is_done
        broker.settle()
        assert asked.response().responses[0].partition_responses[0].error_code == 0


class TestIdempotence:
    """F28 to F30: duplicate batches and sequence gaps."""

    def send(self, broker: SimBroker, sequence: int, *, epoch: int = 0) -> PartitionProduceResponse:
        return broker.produce(
            "t", b"v", producer_id=7, producer_epoch=epoch, base_sequence=sequence
        )

    def test_duplicate_batch_gets_its_first_offset(self) -> None:
        broker = make()
        assert [self.send(broker, n).base_offset for n in (0, 1, 2, 1)] == [0, 1, 2, 1]
        assert broker.log("t").log_end_offset == 3

    def test_sequence_gap_is_refused(self) -> None:
        broker = make()
        self.send(broker, 0)
        assert self.send(broker, 2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_older_producer_epoch_is_refused(self) -> None:
        broker = make()
        self.send(broker, 0, epoch=1)
        assert self.send(broker, 0, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_producer_state_survives_a_restart(self) -> None:
        broker = make()
        self.send(broker, 0)
        broker.stop()
        again = broker.restart()
        assert self.send(again, 0).base_offset == 0
        assert again.log("t").log_end_offset == 1


def test_log_append_time_is_returned_and_stored() -> None:
    broker = make(message_timestamp_type="LogAppendTime")
    answer = broker.produce("t", b"a")
    assert answer.log_append_time_ms == broker.ports.clock.now_ms()


def test_unknown_topic_id_is_an_error() -> None:
    broker = make()
    request = produce_request("", b"a")
    request.topic_data[0].topic_id = b"?" * 16
    answer = broker.ask(request, 13)
    code = answer.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.UNKNOWN_TOPIC_ID


def test_metadata_log_cannot_be_written() -> None:
    broker = SimBroker().start()
    answer = broker.produce("__cluster_metadata", b"a")
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestDisk:
    """F8, F9: a full disk refuses records, a failed one goes offline."""

    def test_full_disk_refuses_records_until_space_is_available(self) -> None:
        broker = make()
        broker.files.capacity_bytes = 0
        assert broker.produce("t", b"a").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.fetch("t").error_code == 0
        broker.files.capacity_bytes = None
        answer = broker.produce("t", b"b")
        assert (answer.error_code, answer.base_offset) == (0, 0)

    def test_nothing_is_acknowledged_after_a_failed_sync(self) -> None:
        broker = make()
        broker.files.fail_when(lambda op: op.name == "sync", errno.EIO)
        assert broker.produce("t", b"a").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        broker.files.fail_no_more()
        assert broker.produce("t", b"a").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.fetch("t").error_code == ErrorCode.KAFKA_STORAGE_ERROR


def _write_slowly(broker: SimBroker, log_dir: str = LOG_DIR) -> None:
    """Mark `log_dir` as slow, as if a write to it had just taken long."""
    broker.broker.log_manager.dirs.writes_of(log_dir).took(50.0)


def _settle_all_but(broker: SimBroker, lane: str) -> None:
    """Run everything except the jobs of one lane."""
    timers, jobs = broker.ports.timers, broker.ports.jobs
    while timers.run_due() or any(one != lane for one in jobs.waiting):
        for one in jobs.waiting:
            if one != lane:
                jobs.run_one(one)


class TestSlowDisk:
    """F10: a slow disk delays only acknowledgements."""

    @pytest.mark.parametrize("acks", [-1, 1])
    def test_response_waits_for_the_write_and_the_sync(self, acks: int) -> None:
        broker = make()
        _write_slowly(broker)
        asked = broker.begin(produce_request("t", b"a", acks=acks), 9)
        _settle_all_but(broker, f"dir:{LOG_DIR}")
        assert not asked.is_done
        broker.settle()
        [answer] = asked.response().responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (0, 0)

    def test_other_directories_and_readers_are_not_delayed(self) -> None:
        broker = SimBroker(log_dirs=("/a", "/b")).start()
        create_topic(broker, "t", 2)
        slow, fast = sorted((0, 1), key=lambda number: str(broker.log("t", number).log_dir))
        for number in (slow, fast):
            assert broker.produce("t", b"before", partition=number).error_code == 0
        _write_slowly(broker, "/a")
        late = broker.begin(produce_request("t", b"late", partition=slow), 9)
        quick = broker.begin(produce_request("t", b"quick", partition=fast), 9)
        fetch = broker.begin(fetch_request("t", 0, partition=slow), 11)
        times = broker.begin(fetch_request("t", 0, partition=fast), 11)
        _settle_all_but(broker, "dir:/a")
        assert not late.is_done
        assert quick.response().responses[0].partition_responses[0].error_code == 0
        assert b"before" in fetch.response().responses[0].partitions[0].records.tobytes()
        assert b"before" in times.response().responses[0].partitions[0].records.tobytes()
        broker.settle()
        assert late.response().responses[0].partition_responses[0].error_code == 0

    @pytest.mark.parametrize("acks", [-1, 1])
    def test_disk_that_is_full_at_the_write_refuses_the_records(self, acks: int) -> None:
        broker = make()
        _write_slowly(broker)
        asked = broker.begin(produce_request("t", b"a", acks=acks), 9)
        broker.files.capacity_bytes = 0
        broker.settle()
        [answer] = asked.response().responses[0].partition_responses
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        broker.files.capacity_bytes = None
        assert broker.produce("t", b"b").base_offset == 0

    def test_acks_0_closes_the_connection_when_the_write_fails(self) -> None:
        broker = make()
        _write_slowly(broker)
        asked = broker.begin(produce_request("t", b"a", acks=0), 9)
        assert not asked.is_done
        broker.files.capacity_bytes = 0
        broker.settle()
        with pytest.raises(CloseConnection):
            asked.response()

    def test_acks_0_gets_no_response_when_the_write_succeeds(self) -> None:
        broker = make()
        _write_slowly(broker)
        asked = broker.begin(produce_request("t", b"a", acks=0), 9)
        broker.settle()
        assert asked.response() is None
        assert b"a" in broker.fetch("t").records.tobytes()

    def test_response_waits_only_for_the_write_with_relaxed_flush(self) -> None:
        broker = make(flush_messages="1000")
        _write_slowly(broker)
        asked = broker.begin(produce_request("t", b"a"), 9)
        assert not asked.is_done
        broker.ports.jobs.run_one(f"dir:{LOG_DIR}")
        broker.ports.timers.run_due()
        assert asked.response().responses[0].partition_responses[0].error_code == 0
        assert b"a" in broker.fetch("t").records.tobytes()

    def test_request_waiting_for_the_write_fails_when_topic_is_deleted(self) -> None:
        broker = SimBroker(log_dirs=("/a", "/b")).start()
        create_topic(broker, "t", 2)
        [there] = [number for number in (0, 1) if broker.log("t", number).log_dir == "/b"]
        _write_slowly(broker, "/b")
        asked = broker.begin(produce_request("t", b"a", partition=there), 9)
        broker.begin(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        _settle_all_but(broker, "dir:/b")
        [answer] = asked.response().responses[0].partition_responses
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.settle()
        assert broker.bugs == []


def test_frame_can_be_reused_after_the_handler_returns() -> None:
    broker = make()
    asked = broker.begin(produce_request("t", b"precious"), 9)
    broker.settle()
    asked.response()
    assert b"precious" in broker.fetch("t").records.tobytes()


def test_waiting_request_holds_no_part_of_the_frame() -> None:
    """The transport may unmap the memory of a large frame once the handler has returned."""
    broker = make()
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=0, records=records_of((b"a",))),
                    PartitionProduceData(index=1, records=b"x" * 80),
                ],
            )
        ],
    )
    frame = bytearray(encode_request(RequestHeader(0, 9, 1, None), request)[4:])
    view = memoryview(frame)
    dispatched = broker.dispatch(view, broker.connection)
    view.release()
    frame.clear()  # Raises BufferError if a view still exists.
    assert isinstance(dispatched.result, Later)
    assert not dispatched.result.done


def test_acks_all_succeeds_when_min_insync_replicas_exceeds_replicas() -> None:
    broker = make(min_insync_replicas="3")
    assert broker.produce("t", b"a").error_code == 0


def test_broker_setting_is_the_default_of_the_topic() -> None:
    broker = SimBroker(message_max_bytes=100).start()
    create_topic(broker, "t")
    assert broker.produce("t", b"a" * 200).error_code == ErrorCode.MESSAGE_TOO_LARGE
    broker.broker.update_config(dataclasses.replace(broker.config, message_max_bytes=1000))
    assert broker.produce("t", b"a" * 200).error_code == 0
