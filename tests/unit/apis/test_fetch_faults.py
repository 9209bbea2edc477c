"""Fetches of damaged batches, from files removed while they are sent, and at the ends of a log."""

from __future__ import annotations

import errno

import pytest

from plog.errors import ErrorCode
from plog.records.batch import HEADER_SIZE, Compression, iter_batches
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from plogd.log.file_names import segment_path
from tests.helpers.sim.sim_broker import SimBroker, create_topic, fetch_request
from tests.helpers.sim.sim_time import START_MS


def make(batches: int = 5, records: int = 2, **batch: object) -> SimBroker:
    """Return a broker with one partition, whose batches are a millisecond apart."""
    broker = SimBroker().start()
    create_topic(broker, "t")
    for number in range(batches):
        answer = broker.produce(
            "t", *[b"%d" % number * 9] * records, now_ms=START_MS + number, **batch
        )
        assert answer.error_code == 0
    return broker


def restarted_with(broker: SimBroker, byte: int, number: int = 2) -> SimBroker:
    """Kill the broker, flip a bit in byte `byte` of batch `number`, and restart it."""
    broker.broker.log_manager.write_high_watermarks()
    broker.settle()
    files = broker.files.kill()
    path = segment_path("/data/t-0", 0, ".log")
    content = bytearray(files.read_file(path))
    position = [position for position, _ in iter_batches(bytes(content))][number]
    content[position + byte] ^= 0x10
    files.overwrite(path, bytes(content))
    return broker.restart(files)


def offset_by_time(broker: SimBroker, timestamp_ms: int) -> tuple[int, int]:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="t",
                partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)],
            )
        ],
    )
    [partition] = broker.ask(request, 7).topics[0].partitions
    return partition.error_code, partition.offset


FIELDS = {
    "base offset, high": 0,
    "base offset, low": 7,
    "length": 10,
    "magic": 16,
    "checksum": 18,
    "attributes": 22,
    "last offset delta": 26,
    "base timestamp": 30,
    "largest timestamp": 40,
    "producer id": 45,
    "producer epoch": 52,
    "base sequence": 55,
    "number of records": 60,
    "the first record": HEADER_SIZE,
    "the last byte": -1,
}


@pytest.mark.parametrize("field", FIELDS)
def test_batch_found_damaged_by_recovery_is_corrupt_and_others_are_read(field: str) -> None:
    """F4, for damage in any field; a lookup by time gives the same result."""
    broker = make()
    size = next(iter_batches(bytes(broker.fetch("t").records)))[1].size_bytes
    again = restarted_with(broker, FIELDS[field] % size)
    for offset in (4, 5):
        answer = again.fetch("t", offset)
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
        assert not answer.records
    for offset, expected in ((0, [0, 2]), (2, [2]), (6, [6, 8]), (8, [8])):
        answer = again.fetch("t", offset)
        assert answer.error_code == 0
        assert [header.base_offset for _, header in iter_batches(bytes(answer.records))] == expected
    assert offset_by_time(again, START_MS + 3) == (0, 6)
    path = segment_path("/data/t-0", 0, ".log")
    assert any(
        f"cannot read offsets 4 to 5, bytes {2 * size} to {3 * size - 1} of {path}" in x
        for x in again.reports
    )
    assert again.produce("t", b"new").base_offset == 10
    assert again.bugs == []


def test_records_with_damaged_leader_epoch_are_read() -> None:
    again = restarted_with(make(), 13)
    assert again.fetch("t", 4).error_code == 0
    assert any("which never existed" in line for line in again.reports)


def test_undetected_damage_is_found_by_the_consumer() -> None:
    """Recovery checks nothing after a clean stop: the bytes are sent unchanged with their CRC."""
    broker = make()
    broker.stop()
    files = broker.files.kill()
    path = segment_path("/data/t-0", 0, ".log")
    content = bytearray(files.read_file(path))
    content[HEADER_SIZE + 3] ^= 1
    files.overwrite(path, bytes(content))
    again = broker.restart(files)
    assert bytes(again.fetch("t").records) == bytes(content)


class TestFilesRemovedWhileSent:
    """F11: a response is a region of an open file, fixed before it is sent (KAFKA-9835)."""

    def test_response_in_progress_survives_deletion_of_its_segment(self) -> None:
        broker = make(1)
        log = broker.log("t")
        asked = broker.begin(fetch_request("t"), 11)
        log.roll()
        broker.settle()
        log.delete_records_before(2)
        broker.ports.advance(120_000)
        assert not broker.files.exists(segment_path("/data/t-0", 0, ".log"))
        [partition] = asked.response().responses[0].partitions
        assert b"0" * 9 in bytes(partition.records)
        assert broker.fetch("t").error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_records_appended_meanwhile_are_not_included(self) -> None:
        broker = make(1)
        asked = broker.begin(fetch_request("t"), 11)
        broker.produce("t", b"later")
        [partition] = asked.response().responses[0].partitions
        assert [header.base_offset for _, header in iter_batches(bytes(partition.records))] == [0]

    def test_failed_read_is_an_error_and_takes_the_directory_offline(self) -> None:
        broker = make()
        broker.log("t").segments.active._recent.clear()
        broker.files.fail_when(lambda op: op.name == "pread" and "t-0" in op.path, errno.EIO)
        assert broker.fetch("t", 3).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.broker.log_manager.offline_dirs == ["/data"]


@pytest.mark.parametrize("codec", list(Compression))
def test_every_offset_is_in_a_batch_at_the_end_or_out_of_range(codec: Compression) -> None:
    """F38: in a batch, which is returned whole; at the end, where the fetch waits; out of range."""
    broker = make(3, records=3, compression=codec)
    broker.broker.replica_manager.partition("t", 0).log.delete_records_before(4)
    broker.settle()
    for offset in range(-1, 13):
        answer = broker.fetch("t", offset)
        if offset < 4 or offset > 9:
            assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        elif offset == 9:
            assert (answer.error_code, bytes(answer.records)) == (0, b"")
            asked = broker.begin(fetch_request("t", offset, max_wait_ms=500), 11)
            assert not asked.is_done
            asked.cancel()
        else:
            first = next(iter_batches(bytes(answer.records)))[1]
            assert first.base_offset <= offset <= first.last_offset


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("max_bytes", [0, 1, 60, 61, 500])
def test_batch_larger_than_max_bytes_is_returned_whole(max_bytes: int, codec: Compression) -> None:
    """F39: otherwise the consumer could never read past it."""
    broker = SimBroker().start()
    create_topic(broker, "t")
    noise = broker.ports.random.random_bytes(5000)
    for _ in range(2):
        broker.produce("t", noise, compression=codec)
    for limits in ({"partition_max_bytes": max_bytes}, {"max_bytes": max_bytes}):
        answer = broker.fetch("t", 0, **limits)
        [(_, header)] = iter_batches(bytes(answer.records))
        assert header.size_bytes == len(bytes(answer.records)) > 5000
