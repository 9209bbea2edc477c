"""ConfigCommand, Kafka's own tool for topic and broker settings."""

from __future__ import annotations

import re

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import create_topic
from tests.helpers.programs.kafka_tools import KafkaTools, RunTool, ToolOutput, broker_id, offsets


def test_topic_setting_is_described_and_takes_effect(run: RunTool, topic: str) -> None:
    run("TopicCommand", "--create", "--topic", topic)

    def alter(*change: str) -> ToolOutput:
        return run("ConfigCommand", "--alter", "--topic", topic, *change)

    def described() -> str:
        return run("ConfigCommand", "--describe", "--topic", topic).stdout

    assert alter("--add-config", "max.message.bytes=150,retention.ms=-1").code == 0
    assert "max.message.bytes=150 sensitive=false" in described()
    assert "{DYNAMIC_TOPIC_CONFIG:retention.ms=-1" in described()
    too_large = run("ConsoleProducer", "--topic", topic, stdin="x" * 400 + "\n")
    assert "RecordTooLargeException" in too_large.text

    assert alter("--delete-config", "max.message.bytes").code == 0
    assert "max.message.bytes" not in described()
    assert "retention.ms=-1" in described()
    accepted = run("ConsoleProducer", "--topic", topic, stdin="x" * 400 + "\n")
    assert "RecordTooLargeException" not in accepted.text
    assert offsets(run, topic) == {0: 1}


@pytest.mark.parametrize("change", ["retention.ms=soon", "no.such.setting=1", "segment.bytes=-7"])
def test_invalid_setting_is_refused(run: RunTool, topic: str, change: str) -> None:
    run("TopicCommand", "--create", "--topic", topic)
    refused = run("ConfigCommand", "--alter", "--topic", topic, "--add-config", change)
    assert refused.code != 0
    assert "InvalidConfigurationException" in refused.text
    assert change.partition("=")[0] in refused.text
    assert run("ConfigCommand", "--describe", "--topic", topic).stdout.count("=") == 0


def test_broker_settings_are_described_with_their_sources(run: RunTool) -> None:
    this = ("--broker", broker_id(run))
    all_of_it = run("ConfigCommand", "--describe", *this, "--all").stdout
    assert "STATIC_BROKER_CONFIG:log.dirs=" in all_of_it
    assert re.search(r"log\.retention\.hours=168 .*DEFAULT_CONFIG:log\.retention\.hours", all_of_it)

    setting = "log.retention.ms"
    try:
        for entity, value in ((("--broker-defaults",), "777600000"), (this, "864000000")):
            change = ("--add-config", f"{setting}={value}")
            assert run("ConfigCommand", "--alter", *entity, *change).code == 0
        description = run("ConfigCommand", "--describe", *this).stdout
        assert f"{setting}=864000000" in description
        assert f"DYNAMIC_BROKER_CONFIG:{setting}=864000000" in description
        assert f"DYNAMIC_DEFAULT_BROKER_CONFIG:{setting}=777600000" in description
        default = run("ConfigCommand", "--describe", "--broker-defaults").stdout
        assert f"{setting}=777600000" in default
    finally:
        for entity in (this, ("--broker-defaults",)):
            run("ConfigCommand", "--alter", *entity, "--delete-config", setting)
    assert setting not in run("ConfigCommand", "--describe", *this).stdout

    fixed = run("ConfigCommand", "--alter", *this, "--add-config", "log.dirs=/elsewhere")
    assert fixed.code != 0
    assert "log.dirs" in fixed.text


def test_settings_survive_a_restart(
    kafka_tools: KafkaTools, own_broker: BrokerProcess, topic: str
) -> None:
    run = kafka_tools.against(own_broker.bootstrap_servers)
    create_topic(own_broker.bootstrap_servers, topic)
    run("ConfigCommand", "--alter", "--topic", topic, "--add-config", "retention.ms=777600000")
    run("ConfigCommand", "--alter", "--broker-defaults", "--add-config", "log.retention.ms=-1")

    own_broker.kill()
    own_broker.restart()
    topics = run("ConfigCommand", "--describe", "--topic", topic).stdout
    assert "retention.ms=777600000" in topics
    defaults = run("ConfigCommand", "--describe", "--broker-defaults").stdout
    assert "log.retention.ms=-1" in defaults
