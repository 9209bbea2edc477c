"""Compaction by a real broker: what remains of compacted topics, and what clients read."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plog
from plog.client.consumer.simple_consumer import SimpleConsumer
from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import confluent_kafka as kafka
from tests.helpers.programs.confluent import consumer, create_topic, produce, read
from tests.helpers.programs.kafka_tools import KafkaTools

RECORDS = 400_000
KEYS = 100
TIMEOUT_S = 40
SETTINGS = {
    "log.cleaner.backoff.ms": "1000",
    "log.segment.bytes": str(1 << 20),
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(1 << 20),
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    yield broker
    if broker.is_running:
        broker.stop()


def _write(servers: str, topic: str, count: int, seed: int) -> dict[bytes, tuple[int, bytes]]:
    """Write records with random keys; return the last offset and value of each key."""
    chance, last = random.Random(seed), {}
    producer = kafka.Producer({"bootstrap.servers": servers, "linger.ms": 20})
    delivered: list[Any] = []
    for number in range(count):
        key, value = b"key-%03d" % chance.randrange(KEYS), b"%d-" % number + b"x" * 190
        while True:
            try:
                producer.produce(
                    topic, key=key, value=value, on_delivery=lambda _, m: delivered.append(m)
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0
    for message in delivered:
        assert message.error() is None
        last[message.key()] = message.offset(), message.value()
    return last


def _wait_until_smaller(directory: Path, nbytes: int) -> None:
    """Wait until the log in `directory` has fewer than `nbytes`."""
    waited = threading.Event()
    for _ in range(TIMEOUT_S * 10):
        if sum(_sizes(directory)) < nbytes:
            return
        waited.wait(0.1)
    raise AssertionError(f"{directory} still has {sum(_sizes(directory))} bytes")


def _sizes(directory: Path) -> Iterator[int]:
    for path in directory.glob("*.log"):
        try:
            yield path.stat().st_size
        except FileNotFoundError:  # It has just been replaced.
            yield 0


def test_compacted_topic_keeps_the_last_record_of_each_key(
    broker: BrokerProcess, kafka_tools: KafkaTools
) -> None:
    create_topic(broker.bootstrap_servers, "prices", 1, cleanup_policy="compact")
    last = _write(broker.bootstrap_servers, "prices", RECORDS, 1)
    directory = broker.data_dir / "prices-0"
    _wait_until_smaller(directory, 8 << 20)
    messages = read(broker.bootstrap_servers, "prices")
    assert len(messages) < RECORDS // 10
    assert {one.key(): (one.offset(), one.value()) for one in messages} == last
    broker.restart()
    again = read(broker.bootstrap_servers, "prices")
    assert {one.key(): (one.offset(), one.value()) for one in again} == last
    more = _write(broker.bootstrap_servers, "prices", 1000, 2)
    assert min(offset for offset, _ in more.values()) >= RECORDS
    broker.stop()
    files = ",".join(str(path) for path in sorted(directory.glob("*.log")))
    dump = kafka_tools.run("DumpLogSegments", "--deep-iteration", "--files", files)
    assert "isvalid: false" not in dump
    indexes = sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
    checked = kafka_tools.run(
        "DumpLogSegments", "--index-sanity-check", "--files", ",".join(map(str, indexes))
    )
    assert checked.count("passed sanity check") + checked.count("is empty.") == len(indexes)


def test_killed_broker_has_the_last_record_of_each_key(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap_servers, "prices", 1, cleanup_policy="compact")
    last: dict[bytes, tuple[int, bytes]] = {}
    for number in range(8):
        last |= _write(broker.bootstrap_servers, "prices", 30_000, number)
        broker.kill()
        broker.start()
        messages = read(broker.bootstrap_servers, "prices")
        assert {one.key(): (one.offset(), one.value()) for one in messages} == last
    _wait_until_smaller(broker.data_dir / "prices-0", 8 << 20)


def test_committed_offsets_are_compacted(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "clicks", 100)
    with consumer(servers, group_id="readers") as client:
        for number in range(1, 401):
            offsets = [kafka.TopicPartition("clicks", one, number) for one in range(100)]
            client.commit(offsets=offsets, asynchronous=False)
    _wait_until_smaller(broker.data_dir / "__consumer_offsets-0", 3 << 19)
    broker.kill()
    broker.start()
    with consumer(servers, group_id="readers") as client:
        partitions = [kafka.TopicPartition("clicks", one) for one in range(100)]
        found = client.committed(partitions, timeout=60)
    assert {one.offset for one in found} == {400}


def test_topic_that_is_no_longer_compacted_keeps_its_gaps(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "prices", 1, cleanup_policy="compact")
    last = _write(servers, "prices", 100_000, 3)
    _wait_until_smaller(broker.data_dir / "prices-0", 4 << 20)
    admin = kafka.admin.AdminClient({"bootstrap.servers": servers})
    entry = kafka.admin.ConfigEntry(
        "cleanup.policy",
        "delete",
        incremental_operation=kafka.admin.AlterConfigOpType.SET,
    )
    resource = kafka.admin.ConfigResource(
        kafka.admin.ConfigResource.Type.TOPIC, "prices", incremental_configs=[entry]
    )
    admin.incremental_alter_configs([resource])[resource].result(60)
    broker.kill()
    broker.start()
    messages = read(servers, "prices")
    assert {one.key(): (one.offset(), one.value()) for one in messages} == last
    assert "lost" not in broker.log_path.read_text()


def test_consumers_skip_the_empty_batches_of_a_compacted_topic(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, "prices", 1, cleanup_policy="compact")
    # The last batch of each producer remains, without its record.
    for number in range(5):
        config = {"enable.idempotence": True}
        assert produce(servers, "prices", [{"key": b"key-000", "value": b"old"}], config) == [None]
        last = _write(servers, "prices", 20_000, number)
    _wait_until_smaller(broker.data_dir / "prices-0", 4 << 20)
    partition = plog.TopicPartition("prices", 0)
    with plog.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as client:
        client.assign([partition])
        [end] = client.end_offsets([partition]).values()
        found: dict[bytes | None, tuple[int, bytes | None]] = {}
        while client.position(partition) < end:
            record = client.poll(timeout_s=0.1)
            if record is not None:
                found[record.key] = record.offset, record.value
    assert found == last
    with SimpleConsumer(bootstrap_servers=servers) as simple:
        records = list(simple.records(partition, 0, end))
        rows = sum(batch.num_rows for batch in simple.arrow_batches(partition, 0, end))
    assert {record.key: (record.offset, record.value) for record in records} == last
    assert rows == len(records)
