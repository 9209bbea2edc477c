"""plog on the directories and znodes of Apache Kafka 3.9, and Kafka on those of plog again."""

from __future__ import annotations

from tests.cluster.clients import Broker, consume, create, listed, produce
from tests.cluster.conftest import StartBroker
from tests.helpers.eventually import eventually
from tests.helpers.programs.kafka_server import KafkaServer

GROUP = "readers"


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
