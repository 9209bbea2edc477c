"""Messages produced and consumed with confluent-kafka, including keys, headers and timestamps.

test_confluent_admin.py tests topics and their settings, test_idempotent_producer.py tests retries.
"""

from __future__ import annotations

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import (
    confluent_kafka,
    consumer,
    create_topic,
    next_message,
    produce,
    read,
    until_end,
)

TopicPartition = confluent_kafka.TopicPartition
KafkaError = confluent_kafka.KafkaError
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MEGABYTE = 1_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_every_codec_are_read_back_unchanged(
    broker: BrokerProcess, topic: str, codec: str
) -> None:
    values = [f"page view {i}".encode() * (i % 40) for i in range(2000)]
    sent = ({"key": b"%d" % i, "value": value} for i, value in enumerate(values))
    errors = produce(broker.bootstrap_servers, topic, sent, {"compression.type": codec})
    assert set(errors) == {None}
    messages = read(broker.bootstrap_servers, topic, check_crcs=True)
    assert [m.value() for m in messages] == values
    assert [m.key() for m in messages] == [b"%d" % i for i in range(2000)]
    assert [m.offset() for m in messages] == list(range(2000))


@pytest.mark.parametrize("codec", CODECS)
def test_consumer_can_start_in_the_middle_of_a_batch(
    broker: BrokerProcess, topic: str, codec: str
) -> None:
    one_batch = {"linger.ms": 200, "compression.type": codec}
    produce(broker.bootstrap_servers, topic, [{"value": b"%d" % i} for i in range(100)], one_batch)
    messages = read(broker.bootstrap_servers, topic, offset=63)
    assert [m.value() for m in messages] == [b"%d" % i for i in range(63, 100)]


def test_headers_keys_and_values_may_be_empty_or_missing(broker: BrokerProcess, topic: str) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None), ("bytes", bytes(300))]
    sent = [
        {"key": b"k", "value": b"v", "headers": headers},
        {"key": b"", "value": b""},
        {"key": None, "value": None},
    ]
    assert produce(broker.bootstrap_servers, topic, sent) == [None, None, None]
    first, empty, missing = read(broker.bootstrap_servers, topic)
    assert first.headers() == headers
    assert (empty.key(), empty.value(), empty.headers()) == (b"", b"", None)
    assert (missing.key(), missing.value()) == (None, None)


def test_create_time_is_kept(broker: BrokerProcess, topic: str) -> None:
    times_ms = [1_700_000_000_000 + i for i in (5, 3, 9)]
    produce(broker.bootstrap_servers, topic, [{"value": b"", "timestamp": t} for t in times_ms])
    messages = read(broker.bootstrap_servers, topic)
    create_time = confluent_kafka.TIMESTAMP_CREATE_TIME
    assert [m.timestamp() for m in messages] == [(create_time, t) for t in times_ms]


def test_topic_with_log_append_time_stores_the_brokers_time(
    broker: BrokerProcess, topic: str
) -> None:
    server = broker.bootstrap_servers
    create_topic(server, topic, message_timestamp_type="LogAppendTime")
    produce(server, topic, [{"value": b"", "timestamp": 1}, {"value": b"", "timestamp": 2}])
    messages = read(server, topic)
    kinds, times_ms = zip(*(m.timestamp() for m in messages), strict=True)
    assert set(kinds) == {confluent_kafka.TIMESTAMP_LOG_APPEND_TIME}
    assert min(times_ms) > 1_700_000_000_000


def test_timestamp_lookup_finds_the_first_message_at_or_after_it(
    broker: BrokerProcess, topic: str
) -> None:
    start_ms = 1_700_000_000_000
    sent = [{"value": b"%d" % i, "timestamp": start_ms + 1000 * i} for i in range(500)]
    # Batches of seven, so that most timestamps are in the middle of one.
    produce(broker.bootstrap_servers, topic, sent, {"batch.num.messages": 7})
    with consumer(broker.bootstrap_servers) as client:

        def offset_at(timestamp_ms: int) -> int:
            [found] = client.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], 30)
            return int(found.offset)

        assert offset_at(0) == 0
        assert offset_at(start_ms + 123_000) == 123
        assert offset_at(start_ms + 123_001) == 124
        assert offset_at(start_ms + 499_000) == 499
        assert offset_at(start_ms + 499_001) == confluent_kafka.OFFSET_END
        client.assign([TopicPartition(topic, 0, offset_at(start_ms + 250_000))])
        assert [m.value() for m in until_end(client)] == [b"%d" % i for i in range(250, 500)]


def test_messages_of_one_megabyte_are_read_back(broker: BrokerProcess, topic: str) -> None:
    values = [bytes([i]) * MEGABYTE for i in range(5)]
    large = {"message.max.bytes": 2 * MEGABYTE}
    sent = ({"value": value} for value in values)
    assert set(produce(broker.bootstrap_servers, topic, sent, large)) == {None}
    assert [m.value() for m in read(broker.bootstrap_servers, topic)] == values
    # A fetch whose limit is below the size of one message still returns one.
    small = read(broker.bootstrap_servers, topic, max_partition_fetch_bytes=1000)
    assert [m.value() for m in small] == values


def test_message_over_the_limit_is_refused_and_the_next_one_accepted(
    broker: BrokerProcess, topic: str
) -> None:
    large = {"message.max.bytes": 4 * MEGABYTE, "linger.ms": 0}
    [too_large] = produce(broker.bootstrap_servers, topic, [{"value": b"x" * 2 * MEGABYTE}], large)
    assert too_large.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert produce(broker.bootstrap_servers, topic, [{"value": b"y"}], large) == [None]
    assert [m.value() for m in read(broker.bootstrap_servers, topic)] == [b"y"]


def test_waiting_consumer_receives_a_message_immediately(broker: BrokerProcess, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, [{"value": b"first"}])
    # The fetch may wait longer than this test may take: only the message can end it.
    with consumer(broker.bootstrap_servers, fetch_wait_max_ms=90_000) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        assert next_message(client).value() == b"first"
        produce(broker.bootstrap_servers, topic, [{"value": b"second"}])
        assert next_message(client).value() == b"second"


def test_consumer_can_wait_for_more_bytes(broker: BrokerProcess, topic: str) -> None:
    server = broker.bootstrap_servers
    produce(server, topic, [{"value": b"x" * 1000}])
    with consumer(server, fetch_min_bytes=50_000, fetch_wait_max_ms=90_000) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        produce(server, topic, [{"value": b"x" * 1000}] * 99)
        assert len([next_message(client) for _ in range(100)]) == 100


def test_offset_outside_the_log_is_an_error_or_a_reset(broker: BrokerProcess, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, [{"value": b"only"}])
    with consumer(broker.bootstrap_servers) as client:
        client.assign([TopicPartition(topic, 0, 1000)])
        assert next_message(client).error().code() == KafkaError._AUTO_OFFSET_RESET
    [found] = read(broker.bootstrap_servers, topic, offset=1000, auto_offset_reset="earliest")
    assert found.value() == b"only"


def test_watermarks_are_the_ends_of_the_log(broker: BrokerProcess, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, [{"value": b"x"}] * 42)
    with consumer(broker.bootstrap_servers) as client:
        assert client.get_watermark_offsets(TopicPartition(topic, 0), 30) == (0, 42)


def test_topic_with_a_thousand_partitions_is_usable(broker: BrokerProcess, topic: str) -> None:
    server, partitions = broker.bootstrap_servers, 1000
    create_topic(server, topic, partitions)
    sent = [{"value": b"%d" % p, "partition": p} for p in range(partitions)]
    assert set(produce(server, topic, sent)) == {None}
    messages = read(server, topic, partitions)
    assert {m.partition(): m.value() for m in messages} == {p: b"%d" % p for p in range(partitions)}
