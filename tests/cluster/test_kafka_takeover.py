"""plog on the directories and znodes of Apache Kafka 3.9, and Kafka on those of plog again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plogd.log.file_names import LOST_RECORDS
from tests.cluster.clients import Broker, consume, create, create_on, listed, produce, read
from tests.cluster.conftest import StartBroker
from tests.helpers.eventually import eventually
from tests.helpers.programs.kafka_server import KafkaServer, kafka_jars

VERSION = "3.9.1"
GROUP = "readers"
NO_LEADER = "1 partitions have no leader: orders-0; this broker has lost the end of their logs"


@pytest.fixture
def kafka(tmp_path: Path, connect: str) -> Iterator[KafkaServer]:
    """A Kafka that has not started yet."""
    settings = {"offsets.topic.num.partitions": "4"}
    server = KafkaServer(
        kafka_jars(VERSION), tmp_path / "kafka", zookeeper=connect, settings=settings
    )
    yield server
    server.kill()


def use(broker: Broker, number: int) -> None:
    """Create a topic, write to all topics, and read what the group has not read."""
    config = {"bootstrap.servers": broker.bootstrap_servers}
    # Kafka answers before its controller is active.
    eventually(lambda: (found := listed(config)) and found.controller_id == 1, "controller")
    create(broker, f"topic-{number}", partitions=3, retention_ms="86400000")
    names = [f"topic-{each}" for each in range(number + 1)]
    for name in names:
        produce(broker, name, *(b"%d-%d" % (number, each) for each in range(100)))
    for name in names:
        expected = {b"%d-%d" % (number, each) for each in range(100)}
        assert set(consume(broker, name, f"{GROUP}-{name}", 100)) == expected


def check_records(broker: Broker, group: str, last: int) -> None:
    """Check all records of all topics with a new group."""
    for topic in range(last + 1):
        runs = range(topic, last + 1)
        expected = sorted(b"%d-%d" % (run, each) for run in runs for each in range(100))
        assert (
            sorted(consume(broker, f"topic-{topic}", f"{group}-{topic}", len(expected))) == expected
        )


def test_brokers_take_turns_with_the_same_directories_and_znodes(
    kafka: KafkaServer, make_broker: StartBroker
) -> None:
    kafka.start()
    use(kafka, 0)
    kafka.stop()
    # The session of a Kafka that was killed lasts for 6 s, and plog waits for twice its own.
    plog = make_broker(log_dirs=str(kafka.log_dir), zookeeper_session_timeout_ms="6000")
    plog.start()
    use(plog, 1)
    check_records(plog, "plog", 1)
    plog.stop()
    kafka.start()
    use(kafka, 2)
    check_records(kafka, "kafka", 2)
    kafka.kill()
    plog.start()
    use(plog, 3)
    check_records(plog, "again", 3)
    plog.stop()


def test_kafka_ignores_the_mark_of_lost_records(
    kafka: KafkaServer, make_broker: StartBroker
) -> None:
    """docs/cluster.md says what an operator does before and after Kafka has run."""
    other = make_broker("other", node_id="2")
    plog = make_broker(log_dirs=str(kafka.log_dir), zookeeper_session_timeout_ms="6000")
    plog.start()
    other.start()
    create_on(plog, "orders", 1, 2)
    produce(plog, "orders", *(b"%d" % number for number in range(10)))
    other.stop()
    plog.stop()
    log = kafka.log_dir / "orders-0"
    (log / "00000000000000000000.log").unlink()
    plog.start()
    eventually(lambda: NO_LEADER in plog.log_text(), "a partition without a leader")
    assert (log / LOST_RECORDS).exists()
    plog.stop()
    kafka.start()
    # It leads the partition without the lost records, and assigns their offsets again.
    produce(kafka, "orders", b"of Kafka")
    assert read(kafka, "orders", 1) == [b"of Kafka"]
    kafka.stop()
    assert (log / LOST_RECORDS).exists()
    reports = plog.log_text().count(NO_LEADER)
    plog.start()
    eventually(lambda: plog.log_text().count(NO_LEADER) > reports, "no leader")
    plog.stop()
    (log / LOST_RECORDS).unlink()
    plog.start()
    assert read(plog, "orders", 1) == [b"of Kafka"]
    plog.stop()
