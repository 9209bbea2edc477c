"""Requests of confluent-kafka's admin client: topics, partitions, settings, records, cluster."""

from __future__ import annotations

import time
from typing import Any

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import (
    TIMEOUT_S,
    admin,
    admin_client,
    confluent_kafka,
    consumer,
    create_topic,
    produce,
    read,
)

KafkaError = confluent_kafka.KafkaError
TopicPartition = confluent_kafka.TopicPartition


def _refusal(broker: BrokerProcess, topic: Any) -> int:
    client = admin_client(broker.bootstrap_servers)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        client.create_topics([topic])[topic.topic].result(TIMEOUT_S)
    return int(refused.value.args[0].code())


def test_created_topic_is_listed_with_its_partitions(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic, 7)
    listed = admin_client(broker.bootstrap_servers).list_topics(topic, 30).topics[topic]
    assert listed.error is None
    assert sorted(listed.partitions) == list(range(7))


@pytest.mark.parametrize(
    ("name", "replicas", "config", "code"),
    [
        ("", 3, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("", 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        ("", 1, {"no.such.setting": "1"}, KafkaError.INVALID_CONFIG),
        ("no/slash", 1, {}, KafkaError.TOPIC_EXCEPTION),
    ],
)
def test_invalid_topic_is_refused(
    broker: BrokerProcess, topic: str, name: str, replicas: int, config: dict[str, str], code: int
) -> None:
    wrong = admin.NewTopic(name or topic, 1, replication_factor=replicas, config=config)
    assert _refusal(broker, wrong) == code
    assert topic not in admin_client(broker.bootstrap_servers).list_topics(timeout=60).topics


def test_existing_topic_name_is_refused(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic)
    again = admin.NewTopic(topic, 1, replication_factor=1)
    assert _refusal(broker, again) == KafkaError.TOPIC_ALREADY_EXISTS


def test_validate_only_creates_nothing(broker: BrokerProcess, topic: str) -> None:
    client = admin_client(broker.bootstrap_servers)
    new = admin.NewTopic(topic, 1, replication_factor=1)
    client.create_topics([new], validate_only=True)[topic].result(TIMEOUT_S)
    assert topic not in client.list_topics(timeout=60).topics


def test_name_of_a_deleted_topic_can_be_reused(broker: BrokerProcess, topic: str) -> None:
    server = broker.bootstrap_servers
    produce(server, topic, [{"value": b"old"}] * 10)
    client = admin_client(server)
    client.delete_topics([topic], operation_timeout=30)[topic].result(TIMEOUT_S)
    # Kafka's brokers apply the deletion a moment after the response.
    deadline = time.monotonic() + TIMEOUT_S
    while topic in client.list_topics(timeout=60).topics:
        assert time.monotonic() < deadline
    create_topic(server, topic)
    produce(server, topic, [{"value": b"new"}])
    assert [(m.offset(), m.value()) for m in read(server, topic)] == [(0, b"new")]


def test_deleting_a_missing_topic_is_an_error(broker: BrokerProcess, topic: str) -> None:
    client = admin_client(broker.bootstrap_servers)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        client.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_consumer_gets_an_error_for_a_missing_topic_when_it_may_not_create_it(
    broker: BrokerProcess, topic: str
) -> None:
    with consumer(broker.bootstrap_servers, allow_auto_create_topics=False) as client:
        error = client.list_topics(topic, TIMEOUT_S).topics[topic].error
        assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic not in admin_client(broker.bootstrap_servers).list_topics(timeout=60).topics


def test_topic_settings_are_described_with_their_source(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic, retention_ms=123456)
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
    client = admin_client(broker.bootstrap_servers)
    entries = client.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert entries["retention.ms"].value == "123456"
    assert entries["retention.ms"].source == admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert entries["max.message.bytes"].value == "1048588"
    assert entries["max.message.bytes"].source == admin.ConfigSource.DEFAULT_CONFIG.value
    assert not any(entry.is_sensitive for entry in entries.values())


def test_offset_of_the_largest_timestamp_is_found(broker: BrokerProcess, topic: str) -> None:
    times_ms = [1_700_000_000_000 + i for i in (5, 900, 7, 8)]
    produce(broker.bootstrap_servers, topic, [{"value": b"", "timestamp": t} for t in times_ms])
    asked = {TopicPartition(topic, 0): admin.OffsetSpec.max_timestamp()}
    client = admin_client(broker.bootstrap_servers)
    [future] = client.list_offsets(asked).values()
    assert (future.result(TIMEOUT_S).offset, future.result().timestamp) == (1, times_ms[1])


def test_added_partitions_are_usable_and_old_ones_keep_their_records(
    broker: BrokerProcess, topic: str
) -> None:
    server = broker.bootstrap_servers
    create_topic(server, topic, 2)
    produce(server, topic, [{"value": b"old", "partition": 0}])
    client = admin_client(server)
    client.create_partitions([admin.NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
    assert sorted(client.list_topics(topic, 30).topics[topic].partitions) == [0, 1, 2, 3]
    produce(server, topic, [{"value": b"new", "partition": number} for number in range(4)])
    records = sorted((m.partition(), m.offset(), m.value()) for m in read(server, topic, 4))
    assert records == [(0, 0, b"old"), (0, 1, b"new"), *((n, 0, b"new") for n in (1, 2, 3))]


def test_partitions_are_added_with_an_assignment_unless_only_validated(
    broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    client = admin_client(broker.bootstrap_servers)
    assignment = admin.NewPartitions(topic, 2, replica_assignment=[[1]])
    client.create_partitions([assignment], validate_only=True)[topic].result(TIMEOUT_S)
    assert len(client.list_topics(topic, 30).topics[topic].partitions) == 1
    client.create_partitions([assignment])[topic].result(TIMEOUT_S)
    assert len(client.list_topics(topic, 30).topics[topic].partitions) == 2


@pytest.mark.parametrize(
    ("count", "assignment", "code"),
    [
        (1, {}, KafkaError.INVALID_PARTITIONS),
        (2, {"replica_assignment": [[77]]}, KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_invalid_partitions_are_refused(
    broker: BrokerProcess, topic: str, count: int, assignment: dict[str, Any], code: int
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    client = admin_client(broker.bootstrap_servers)
    asked = admin.NewPartitions(topic, count, **assignment)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        client.create_partitions([asked])[topic].result(TIMEOUT_S)
    assert refused.value.args[0].code() == code


def test_deleted_records_are_not_readable(broker: BrokerProcess, topic: str) -> None:
    server = broker.bootstrap_servers
    create_topic(server, topic)
    produce(server, topic, [{"value": str(number).encode()} for number in range(10)])
    client = admin_client(server)
    [future] = client.delete_records([TopicPartition(topic, 0, 7)]).values()
    assert future.result(TIMEOUT_S).low_watermark == 7
    with consumer(server) as reader:
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (7, 10)
    assert [m.value() for m in read(server, topic, offset=7)] == [b"7", b"8", b"9"]
    [future] = client.delete_records([TopicPartition(topic, 0, 11)]).values()
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        future.result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_deletion_of_records_survives_a_kill(own_broker: BrokerProcess, topic: str) -> None:
    server = own_broker.bootstrap_servers
    produce(server, topic, [{"value": str(number).encode()} for number in range(10)])
    client = admin_client(server)
    [future] = client.delete_records([TopicPartition(topic, 0, 7)]).values()
    future.result(TIMEOUT_S)
    own_broker.kill()
    own_broker.restart()
    with consumer(server) as reader:
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (7, 10)


def test_cluster_is_described(broker: BrokerProcess) -> None:
    host, _, port = broker.bootstrap_servers.partition(":")
    client = admin_client(broker.bootstrap_servers)
    cluster = client.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [(1, host, int(port))]
    assert cluster.controller.id == 1
    assert cluster.cluster_id == client.list_topics(timeout=60).cluster_id
    assert admin.AclOperation.DESCRIBE in cluster.authorized_operations


def test_election_is_not_needed_for_a_current_leader(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic)
    client = admin_client(broker.bootstrap_servers)
    asked = [TopicPartition(topic, 0)]
    elected = client.elect_leaders(confluent_kafka.ElectionType.PREFERRED, asked).result(TIMEOUT_S)
    assert elected[TopicPartition(topic, 0)].code() == KafkaError.ELECTION_NOT_NEEDED
