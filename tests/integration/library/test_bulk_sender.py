"""BulkSender: records that must wait are sent by the producer, and nothing is lost."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

import plog
from plog.client.errors import ClosedError, RecordTooLarge
from plog.client.faces.blocking.bulk_sender import BulkSender
from plog.client.simple import SimpleConsumer
from plog.errors import MessageTooLarge
from plog.records.codec import NO_OFFSET, RecordFields
from plog.types import TopicPartition
from plogd.testing.running_broker import RunningBroker


def producer_of(broker: RunningBroker, **settings: Any) -> plog.Producer:
    return plog.Producer(bootstrap_servers=broker.bootstrap_servers, **settings)


def records(*values: bytes, key: bytes | None = None) -> list[RecordFields]:
    now_ms = int(time.time() * 1000)
    return [(NO_OFFSET, now_ms, key, value, (("h", b"x"),)) for value in values]


@pytest.fixture
def topic(plog_broker: RunningBroker) -> str:
    name = f"lists-{uuid.uuid4().hex[:12]}"
    with plog.Admin(bootstrap_servers=plog_broker.bootstrap_servers) as admin:
        admin.create_topic(name, partitions=2)
    return name


def values_in(broker: RunningBroker, topic: str, partition: int) -> list[bytes | None]:
    place = TopicPartition(topic, partition)
    with SimpleConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        end = consumer.end_offsets([place])[place]
        return [record.value for record in consumer.records(place, 0, end)]


@pytest.mark.parametrize("memory", [40_000, 32 << 20])
def test_more_records_than_memory_are_all_written(
    plog_broker: RunningBroker, topic: str, memory: int
) -> None:
    values = [b"%05d" % number + bytes(100) for number in range(20_000)]
    errors: list[Exception] = []
    with producer_of(plog_broker, buffer_memory=memory) as producer:
        sender = BulkSender(producer)
        sender.send_all(topic, 1, records(*values), errors.append)
        sender.flush()
        assert values_in(plog_broker, topic, 1) == values
    assert not errors


def test_key_selects_the_partition_that_send_selects(
    plog_broker: RunningBroker, topic: str
) -> None:
    with producer_of(plog_broker) as producer:
        sender = BulkSender(producer)
        for key in (b"a", b"b", b"c"):
            partition = producer.send_and_wait(topic, b"first", key=key).partition
            sender.send_all(topic, None, records(b"second", key=key), print)
            sender.flush()
            assert values_in(plog_broker, topic, partition)[-1] == b"second"


def test_topic_is_created_for_the_first_record(plog_broker: RunningBroker) -> None:
    topic = f"lists-{uuid.uuid4().hex[:12]}"
    with producer_of(plog_broker) as producer:
        sender = BulkSender(producer)
        sender.send_all(topic, 0, records(b"1", b"2"), print)
        sender.flush()
    assert values_in(plog_broker, topic, 0) == [b"1", b"2"]


def test_record_that_is_too_large_is_rejected(plog_broker: RunningBroker, topic: str) -> None:
    with producer_of(plog_broker, max_request_size=10_000) as producer:
        sender = BulkSender(producer)
        with pytest.raises(RecordTooLarge, match=r"max\.request\.size"):
            sender.send_all(topic, 0, records(b"1", bytes(20_000), b"3"), print)
        sender.flush()
    assert values_in(plog_broker, topic, 0) == [b"1"]


def test_failure_of_a_record_that_waited_is_reported(
    plog_broker: RunningBroker, topic: str
) -> None:
    errors: list[Exception] = []
    with producer_of(plog_broker, plog_audit_enable=True, max_request_size=2_000_000) as producer:
        # An audited producer handles each record, so that all of them are sent one by one.
        sender = BulkSender(producer)
        sender.send_all(topic, 0, records(b"1", bytes(1_100_000), b"3"), errors.append)
        sender.flush()
    assert [type(error) for error in errors] == [MessageTooLarge]
    assert values_in(plog_broker, topic, 0) == [b"1", b"3"]


def test_closed_producer_rejects_lists(plog_broker: RunningBroker, topic: str) -> None:
    with producer_of(plog_broker) as producer:
        sender = BulkSender(producer)
        sender.send_all(topic, 0, records(b"1"), print)
    with pytest.raises(ClosedError):
        sender.send_all(topic, 0, records(b"2"), print)
    with pytest.raises(ClosedError):
        sender.flush()


def test_negative_partition_is_rejected_after_others(
    plog_broker: RunningBroker, topic: str
) -> None:
    with producer_of(plog_broker) as producer:
        sender = BulkSender(producer)
        sender.send_all(topic, 0, records(b"1"), print)
        with pytest.raises(ValueError, match="negative"):
            sender.send_all(topic, -1, records(b"2"), print)
    assert values_in(plog_broker, topic, 1) == []
