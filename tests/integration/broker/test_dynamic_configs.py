"""Settings changed while the broker runs, with confluent-kafka's admin client and Kafka's own tool.

librdkafka requires a resource name, so only the tool can change the defaults of all brokers.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
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
)
from tests.helpers.programs.kafka_tools import KafkaTools

KafkaError = confluent_kafka.KafkaError
Operation = admin.AlterConfigOpType
TOPIC, BROKER = admin.ResourceType.TOPIC, admin.ResourceType.BROKER
Server = BrokerProcess


def _change(name: str, value: str | None, operation: Any = Operation.SET) -> Any:
    return admin.ConfigEntry(name, value, incremental_operation=operation)


def _alter(
    broker: Server, kind: Any, name: str, *changes: Any, validate_only: bool = False
) -> None:
    resource = admin.ConfigResource(kind, name, incremental_configs=list(changes))
    client = admin_client(broker.bootstrap_servers)
    futures = client.incremental_alter_configs([resource], validate_only=validate_only)
    futures[resource].result(TIMEOUT_S)


def _refusal(broker: Server, kind: Any, name: str, *changes: Any) -> tuple[int, str]:
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        _alter(broker, kind, name, *changes)
    error = refused.value.args[0]
    return int(error.code()), str(error.str())


def _described(broker: Server, kind: Any, name: str) -> dict[str, Any]:
    resource = admin.ConfigResource(kind, name)
    client = admin_client(broker.bootstrap_servers)
    described: dict[str, Any] = client.describe_configs([resource])[resource].result(TIMEOUT_S)
    return described


def _value(broker: Server, kind: Any, name: str, setting: str) -> tuple[str, str]:
    """Return the value of a setting and its source."""
    entry = _described(broker, kind, name)[setting]
    return entry.value, admin.ConfigSource(entry.source).name


def test_max_message_bytes_of_a_topic_is_enforced(broker: Server, topic: str) -> None:
    server, large = broker.bootstrap_servers, [{"value": b"x" * 2000}]
    create_topic(server, topic)
    assert produce(server, topic, large) == [None]
    _alter(broker, TOPIC, topic, _change("max.message.bytes", "1000"))
    [error] = produce(server, topic, large)
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert _value(broker, TOPIC, topic, "max.message.bytes") == ("1000", "DYNAMIC_TOPIC_CONFIG")
    _alter(broker, TOPIC, topic, _change("max.message.bytes", None, Operation.DELETE))
    assert produce(server, topic, large) == [None]
    assert _value(broker, TOPIC, topic, "max.message.bytes") == ("1048588", "DEFAULT_CONFIG")


def test_values_are_appended_to_and_subtracted_from_lists(broker: Server, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic)
    _alter(broker, TOPIC, topic, _change("cleanup.policy", "compact", Operation.APPEND))
    assert _value(broker, TOPIC, topic, "cleanup.policy")[0] == "delete,compact"
    _alter(broker, TOPIC, topic, _change("cleanup.policy", "delete", Operation.SUBTRACT))
    assert _value(broker, TOPIC, topic, "cleanup.policy")[0] == "compact"
    [error] = produce(broker.bootstrap_servers, topic, [{"value": b"without a key"}])
    assert error.code() == KafkaError.INVALID_RECORD


def test_alter_configs_replaces_all_settings(broker: Server, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic, retention_ms=5000, segment_ms=6000)
    client = admin_client(broker.bootstrap_servers)
    new = admin.ConfigResource(TOPIC, topic, set_config={"segment.ms": "7000"})
    client.alter_configs([new])[new].result(TIMEOUT_S)
    assert _value(broker, TOPIC, topic, "segment.ms") == ("7000", "DYNAMIC_TOPIC_CONFIG")
    assert _value(broker, TOPIC, topic, "retention.ms")[1] != "DYNAMIC_TOPIC_CONFIG"


def test_validate_only_changes_nothing(broker: Server, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic)
    _alter(broker, TOPIC, topic, _change("retention.ms", "5000"), validate_only=True)
    assert _value(broker, TOPIC, topic, "retention.ms")[0] == "604800000"


def test_invalid_changes_are_refused_with_kafkas_error_codes(broker: Server, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic)
    code, text = _refusal(broker, TOPIC, topic, _change("retention.ms", "soon"))
    assert code == KafkaError.INVALID_CONFIG
    assert "retention.ms" in text
    assert "soon" in text
    code, text = _refusal(broker, TOPIC, topic, _change("no.such.setting", "1"))
    assert (code, "no.such.setting" in text) == (KafkaError.INVALID_CONFIG, True)
    code, _ = _refusal(broker, TOPIC, f"{topic}-not", _change("retention.ms", "5"))
    assert code == KafkaError.UNKNOWN_TOPIC_OR_PART
    code, text = _refusal(broker, BROKER, "1", _change("num.partitions", "5"))
    assert (code, "num.partitions" in text) == (KafkaError.INVALID_REQUEST, True)


def test_retention_takes_effect_and_settings_survive_a_restart(
    start_broker: Callable[..., Server], topic: str
) -> None:
    broker = start_broker({"log.retention.check.interval.ms": "200"})
    server = broker.bootstrap_servers
    create_topic(server, topic)
    produce(server, topic, [{"value": b"old"}])
    _alter(broker, BROKER, "1", _change("message.max.bytes", "3000"))
    _alter(broker, TOPIC, topic, _change("retention.ms", "1"))
    deadline = time.monotonic() + TIMEOUT_S
    while _watermarks(server, topic) != (1, 1):
        assert time.monotonic() < deadline, "retention did not delete the record"
    broker.kill()
    broker.restart()
    server = broker.bootstrap_servers
    assert _value(broker, TOPIC, topic, "retention.ms") == ("1", "DYNAMIC_TOPIC_CONFIG")
    assert _value(broker, BROKER, "1", "message.max.bytes") == ("3000", "DYNAMIC_BROKER_CONFIG")
    [error] = produce(server, topic, [{"value": b"x" * 3500}])
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    _alter(broker, BROKER, "1", _change("message.max.bytes", None, Operation.DELETE))
    assert produce(server, topic, [{"value": b"x" * 3500}]) == [None]


def test_max_connections_applies_to_new_connections(own_broker: Server) -> None:
    _alter(own_broker, BROKER, "1", _change("max.connections", "3"))
    host, _, port = own_broker.bootstrap_servers.rpartition(":")
    opened = [socket.create_connection((host, int(port)), TIMEOUT_S) for _ in range(6)]
    try:
        opened[-1].settimeout(TIMEOUT_S)
        assert opened[-1].recv(1) == b"", "the broker did not close the last connection"
    finally:
        for one in opened:
            one.close()
    assert "the limit max.connections=3 is reached" in own_broker.log_text()


def test_reload_keeps_dynamic_settings(own_broker: Server) -> None:
    _alter(own_broker, BROKER, "1", _change("plog.log.level", "WARN"))
    own_broker.reload()
    assert _value(own_broker, BROKER, "1", "plog.log.level")[0] == "warn"
    assert "reloaded" not in own_broker.log_text()


def _watermarks(server: str, topic: str) -> tuple[int, int]:
    with consumer(server) as client:
        low, high = client.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), 30)
    return int(low), int(high)


class TestKafkasOwnTool:
    """kafka-configs.sh; each test checks a lot, because each run starts a JVM."""

    @pytest.fixture
    def run(self, kafka_tools: KafkaTools, own_broker: Server) -> Callable[..., str]:
        def run_tool(*arguments: str) -> str:
            server = ("--bootstrap-server", own_broker.bootstrap_servers)
            return kafka_tools.run("ConfigCommand", *server, *arguments)

        return run_tool

    def test_topic_settings_are_added_described_and_deleted(
        self, run: Callable[..., str], own_broker: Server, topic: str
    ) -> None:
        create_topic(own_broker.bootstrap_servers, topic, segment_ms=9000)
        entity = ("--entity-type", "topics", "--entity-name", topic)
        added = run(
            *entity, "--alter", "--add-config", "retention.ms=7000,cleanup.policy=[delete,compact]"
        )
        assert f"Completed updating config for topic {topic}." in added
        described = run(*entity, "--describe")
        assert "retention.ms=7000 sensitive=false" in described
        assert "{DYNAMIC_TOPIC_CONFIG:retention.ms=7000" in described
        assert "cleanup.policy=delete,compact" in described
        assert "max.message.bytes" not in described
        assert "max.message.bytes=1048588" in run(*entity, "--describe", "--all")
        run(*entity, "--alter", "--delete-config", "retention.ms,segment.ms")
        left = run(*entity, "--describe")
        assert "retention.ms" not in left
        assert "segment.ms" not in left

    def test_broker_settings_override_the_cluster_defaults(
        self, run: Callable[..., str], kafka_tools: KafkaTools, own_broker: Server
    ) -> None:
        one = ("--entity-type", "brokers", "--entity-name", "1")
        default = ("--entity-type", "brokers", "--entity-default")
        run(*one, "--alter", "--add-config", "log.retention.ms=5000")
        run(*default, "--alter", "--add-config", "log.retention.ms=6000,max.connections=500")
        described = run(*one, "--describe")
        assert (
            "log.retention.ms=5000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:"
            "log.retention.ms=5000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=6000"
        ) in described
        of_all = run(*default, "--describe")
        assert "log.retention.ms=6000" in of_all
        assert "max.connections=500" in of_all
        assert "num.partitions=1" in run(*one, "--describe", "--all")
        own_broker.restart()
        run(*one, "--alter", "--delete-config", "log.retention.ms")
        assert _value(own_broker, BROKER, "1", "log.retention.ms") == (
            "6000",
            "DYNAMIC_DEFAULT_BROKER_CONFIG",
        )
        server = ("--bootstrap-server", own_broker.bootstrap_servers)
        refused = kafka_tools.attempt(
            "ConfigCommand", *server, *one, "--alter", "--add-config", "num.partitions=3"
        )
        assert refused.code != 0
        assert "restart the broker" in refused.stdout + refused.stderr

    def test_logger_levels_change_until_a_restart(
        self, run: Callable[..., str], own_broker: Server
    ) -> None:
        logger = ("--entity-type", "broker-loggers", "--entity-name", "1")
        assert "root=INFO" in run(*logger, "--describe")
        run(*logger, "--alter", "--add-config", "root=DEBUG")
        assert "root=DEBUG" in run(*logger, "--describe")
        run("--entity-type", "client-metrics", "--describe")
        own_broker.restart()
        assert "root=INFO" in run(*logger, "--describe")
