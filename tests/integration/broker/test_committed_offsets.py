"""Committed offsets of consumers that assign their own partitions.

The clients are confluent-kafka and Kafka's dump tool; other files test groups with members.
"""

from __future__ import annotations

from typing import Any

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import (
    confluent_kafka,
    consumer,
    create_topic,
    next_message,
    produce,
)
from tests.helpers.programs.kafka_tools import KafkaTools

TopicPartition = confluent_kafka.TopicPartition


def committed(bootstrap_servers: str, group: str, *partitions: Any) -> list[tuple[int, str | None]]:
    with consumer(bootstrap_servers, group_id=group) as client:
        return [(one.offset, one.metadata) for one in client.committed(list(partitions), 30)]


def test_consumer_resumes_at_its_committed_offset(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic, 2)
    sent = ({"value": b"%d" % i, "partition": 1} for i in range(9))
    produce(broker.bootstrap_servers, topic, sent)
    group = f"{topic}-grün"
    with consumer(broker.bootstrap_servers, group_id=group, enable_auto_commit=False) as client:
        client.assign([TopicPartition(topic, 1, 0)])
        seen = [next_message(client).value() for _ in range(5)]
        assert seen == [b"%d" % i for i in range(5)]
        committed_offsets = client.commit(
            offsets=[TopicPartition(topic, 1, 5, "page 5 é")], asynchronous=False
        )
        assert [(one.offset, one.error) for one in committed_offsets] == [(5, None)]
    with consumer(broker.bootstrap_servers, group_id=group) as client:
        client.assign([TopicPartition(topic, 1)])  # Start at the group's committed offset.
        assert next_message(client).value() == b"5"
    places = committed(
        broker.bootstrap_servers, group, TopicPartition(topic, 1), TopicPartition(topic, 0)
    )
    assert places[0] == (5, "page 5 é")
    assert places[1][0] == confluent_kafka.OFFSET_INVALID


def test_committed_offsets_survive_a_restart_and_a_kill(
    own_broker: BrokerProcess, topic: str
) -> None:
    create_topic(own_broker.bootstrap_servers, topic)
    place = TopicPartition(topic, 0)
    with consumer(own_broker.bootstrap_servers, group_id="g", enable_auto_commit=False) as client:
        client.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    own_broker.restart()
    assert committed(own_broker.bootstrap_servers, "g", place)[0][0] == 3
    with consumer(own_broker.bootstrap_servers, group_id="g", enable_auto_commit=False) as client:
        client.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    own_broker.kill()
    own_broker.restart()
    assert committed(own_broker.bootstrap_servers, "g", place)[0][0] == 4


def test_kafkas_dump_tool_reads_committed_offsets(
    own_broker: BrokerProcess, kafka_tools: KafkaTools, topic: str
) -> None:
    create_topic(own_broker.bootstrap_servers, topic)
    with consumer(own_broker.bootstrap_servers, group_id="g", enable_auto_commit=False) as client:
        client.commit(offsets=[TopicPartition(topic, 0, 42, "x")], asynchronous=False)
    own_broker.stop()
    partition_dir = own_broker.data_dir / "__consumer_offsets-3"  # "g".hashCode() is 103.
    dump = kafka_tools.run(
        "DumpLogSegments", "--offsets-decoder", "--files", partition_dir / f"{0:020}.log"
    )
    assert f'"group":"g","topic":"{topic}","partition":0' in dump
    assert '"offset":42' in dump and '"metadata":"x' in dump
    assert "isvalid: false" not in dump
