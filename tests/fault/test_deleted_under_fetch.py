"""F11: a response to a slow reader is complete even if its segment is deleted meanwhile.

If a file can no longer be read, the broker closes the connection: it never sends a short frame.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plog.errors import OffsetOutOfRange
from plog.records.codec import Record
from plog.records.reader import iter_records
from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from plogd.testing.broker_process import BrokerProcess
from tests.fault.bad_disk import BadDisk
from tests.fault.clients import client_of, connect
from tests.helpers.eventually import TIMEOUT_S, eventually
from tests.helpers.programs.confluent import admin_client, confluent_kafka, create_topic

_RECORD_BYTES = 900_000
_RECORDS = 24
_VERSION = 12
_SETTINGS = {
    "log.segment.delete.delay.ms": "0",
    "log.retention.check.interval.ms": "50",
    "log.cleaner.backoff.ms": "50",
}


@contextmanager
def _broker_with_records(directory: Path, **environment: str) -> Iterator[BrokerProcess]:
    """Start a broker with topic ``t``: more bytes in few segments than socket buffers hold."""
    with BrokerProcess(directory, _SETTINGS, environment=environment) as broker:
        create_topic(broker.bootstrap_servers, "t", segment_bytes=_RECORD_BYTES * 20)
        with client_of(broker) as client:
            for number in range(_RECORDS):
                client.produce("t", 0, [Record(value=bytes([number]) * _RECORD_BYTES)])
        yield broker


def _begin_fetch(broker: BrokerProcess) -> socket.socket:
    """Fetch 18 MB; return the connection as soon as the response begins, without reading it."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    request = FetchRequest(
        max_wait_ms=0, max_bytes=1 << 30, topics=[FetchTopic(topic="t", partitions=[wanted])]
    )
    reader = connect(broker)
    reader.sendall(encode_request(RequestHeader(request.api_key, _VERSION, 1, "slow"), request))
    assert reader.recv(1, socket.MSG_PEEK)
    return reader


def _read_frame(reader: socket.socket) -> bytes:
    """Read one frame with its size, or as much as arrives before the connection closes."""
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        try:
            received = reader.recv(1 << 20)
        except ConnectionResetError:
            received = b""
        if not received:
            break
        data += received
    return bytes(data)


def _delete_records(broker: BrokerProcess) -> None:
    where = confluent_kafka.TopicPartition("t", 0, _RECORDS)
    admin = admin_client(broker.bootstrap_servers)
    [deleted] = admin.delete_records([where]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == _RECORDS


def _delete_topic(broker: BrokerProcess) -> None:
    admin = admin_client(broker.bootstrap_servers)
    admin.delete_topics(["t"])["t"].result(TIMEOUT_S)


def _retain_nothing(broker: BrokerProcess) -> None:
    _set(broker, "retention.bytes", "0")


def _set(broker: BrokerProcess, name: str, value: str) -> None:
    resource = confluent_kafka.admin.ConfigResource("topic", "t")
    entry = confluent_kafka.admin.ConfigEntry(
        name,
        value,
        incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET,
    )
    resource.add_incremental_config(entry)
    admin = admin_client(broker.bootstrap_servers)
    [altered] = admin.incremental_alter_configs([resource]).values()
    altered.result(TIMEOUT_S)


@pytest.mark.parametrize("delete", [_delete_records, _delete_topic, _retain_nothing])
def test_fetch_in_flight_is_complete_when_its_segment_is_deleted(
    tmp_path: Path, delete: Callable[[BrokerProcess], None]
) -> None:
    with _broker_with_records(tmp_path) as broker, _begin_fetch(broker) as reader:
        delete(broker)
        first = f"t-0*/{0:020}.log*"
        eventually(lambda: not list(broker.data_dir.glob(first)), "a deleted file")
        _check_complete(_read_frame(reader))
        if delete is not _delete_topic:
            with client_of(broker) as client, pytest.raises(OffsetOutOfRange):
                client.fetch("t", 0, 0)


def test_fetch_in_flight_is_complete_when_its_segment_is_compacted(tmp_path: Path) -> None:
    with _broker_with_records(tmp_path) as broker, _begin_fetch(broker) as reader:
        _set(broker, "cleanup.policy", "compact")  # It removes records without a key.
        eventually(lambda: "compacted t-0 up to offset" in broker.log_text(), "a compaction")
        _check_complete(_read_frame(reader))
        with client_of(broker) as client:
            assert client.fetch("t", 0, 0) == [], "an empty batch keeps the last offset"
            assert client.fetch("t", 0, 19)[0].offset == 19


def _check_complete(frame: bytes) -> None:
    """Check that a response has all records of the first segment."""
    _, position = decode_response_header(frame[4:], FetchRequest.api_key, _VERSION)
    answer = FetchResponse.decode(memoryview(frame)[4 + position :], _VERSION)
    data = answer.responses[0].partitions[0]
    assert data.error_code == 0
    values = [record.value for record in iter_records(data.records)]
    assert values[:19] == [bytes([number]) * _RECORD_BYTES for number in range(19)]


def test_unreadable_file_closes_the_connection_within_the_frame(tmp_path: Path) -> None:
    bad = BadDisk(tmp_path)
    with _broker_with_records(tmp_path, **bad.environment) as broker:
        with _begin_fetch(broker) as reader:
            bad.fail_reads(broker.data_dir)
            frame = _read_frame(reader)
        size = int.from_bytes(frame[:4], "big")
        assert 0 < len(frame) < 4 + size
        bad.heal()
        assert "cannot send to 127.0.0.1: [Errno 5]" in broker.log_text()
        with client_of(broker) as client:
            assert len(client.fetch("t", 0, 0, max_bytes=1)) == 1
