"""Rules for all settings of the broker, and their description in DescribeConfigs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plog.enums import ConfigSource
from plog.settings import Setting, settings_of
from plogd.config import BrokerConfig, ConfigSynonym, SettingType, load_config
from plogd.config.broker_config import cross_check
from plogd.config.known_settings import KAFKA_4_NAMES, ZOOKEEPER_MODE_NAMES

ROWS = settings_of(BrokerConfig)
every_row = pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)

# Settings whose default differs from Kafka's; docs/configuration.md gives the reasons.
OUR_DEFAULTS = {
    "log.flush.interval.messages": 1,
    "node.id": 1,
    "queued.max.request.bytes": 128 * 2**20,
    "socket.listen.backlog.size": 4096,
}


@every_row
def test_attribute_is_the_name_with_underscores(row: Setting) -> None:
    assert getattr(BrokerConfig(), row.attribute) == row.default


@every_row
def test_default_is_allowed(row: Setting) -> None:
    text = row.format(row.default)
    if text is not None:
        assert row.parse(text) == row.default


@every_row
def test_name_is_kafkas_or_starts_with_plog(row: Setting) -> None:
    known = KAFKA_4_NAMES | ZOOKEEPER_MODE_NAMES
    assert (row.name in known) != row.name.startswith("plog.")
    assert set(row.aliases) <= KAFKA_4_NAMES


@every_row
def test_setting_has_a_text_and_the_unit_in_its_name(row: Setting) -> None:
    assert row.doc.endswith((".", "`."))
    for unit in ("ms", "bytes", "hours", "minutes"):
        if row.name.endswith("." + unit):
            assert row.unit == unit


def test_defaults_that_differ_from_kafkas() -> None:
    assert {name: ROWS[name].default for name in OUR_DEFAULTS} == OUR_DEFAULTS


def test_data_directory_is_in_the_working_directory_without_log_dirs() -> None:
    assert BrokerConfig().data_dirs == ("./plog-data",)
    assert BrokerConfig(log_dirs=("/a", "/b")).data_dirs == ("/a", "/b")


def test_data_directory_is_the_state_directory_without_log_dirs() -> None:
    assert BrokerConfig(state_directory="/s").data_dirs == ("/s",)
    assert BrokerConfig(state_directory="/s", log_dirs=("/a",)).data_dirs == ("/a",)


def test_default_listener_uses_all_interfaces_and_advertises_nothing() -> None:
    assert [str(x) for x in BrokerConfig().bound_listeners()] == ["PLAINTEXT://:9092"]
    assert BrokerConfig().advertised_by_name() == {}


def test_default_value_is_described_as_default() -> None:
    entry = {e.name: e for e in BrokerConfig().describe()}["num.partitions"]
    assert (entry.value, entry.source) == ("1", ConfigSource.DEFAULT_CONFIG)
    assert (entry.type, entry.read_only, entry.sensitive) == (SettingType.INT, True, False)
    assert entry.synonyms == (
        ConfigSynonym(name="num.partitions", value="1", source=ConfigSource.DEFAULT_CONFIG),
    )


def test_explicit_value_is_described_as_static_even_if_it_equals_the_default() -> None:
    config = load_config([], ["num.partitions=1", "log.segment.bytes=2097152"]).config
    entries = {e.name: e for e in config.describe()}
    assert entries["num.partitions"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["log.segment.bytes"].value == "2097152"
    assert not entries["log.segment.bytes"].read_only
    assert [s.source for s in entries["log.segment.bytes"].synonyms] == [
        ConfigSource.STATIC_BROKER_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    ]


def test_setting_without_a_value_is_described_as_null() -> None:
    entry = {e.name: e for e in BrokerConfig().describe()}["log.retention.ms"]
    assert (entry.value, entry.source, entry.synonyms) == (None, ConfigSource.DEFAULT_CONFIG, ())


@pytest.mark.parametrize("name", ["replica.socket.timeout.ms", "replica.lag.time.max.ms"])
def test_follower_must_not_wait_longer_than_the_limits(name: str) -> None:
    config = replace(BrokerConfig(), replica_fetch_wait_max_ms=600)
    assert list(cross_check(config)) == []
    changed: dict[str, Any] = {name.replace(".", "_"): 599}
    [(setting, problem)] = cross_check(replace(config, **changed))
    assert (setting, problem) == (name, "is below replica.fetch.wait.max.ms (600)")


class TestInterBrokerListener:
    """The listener that brokers use between each other."""

    def config(self, **settings: str | tuple[str, ...] | None) -> BrokerConfig:
        protocols = "INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"
        listeners = ("PLAINTEXT://:9092", "INSIDE://:9093")
        defaults = {"listener_security_protocol_map": protocols, "listeners": listeners}
        return replace(BrokerConfig(), **(defaults | settings))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("settings", "name", "port"),
        [
            ({}, "PLAINTEXT", 9092),
            ({"inter_broker_listener_name": "inside"}, "INSIDE", 9093),
            ({"security_inter_broker_protocol": "SSL"}, "SSL", None),
            ({"security_inter_broker_protocol": "SSL", "listeners": ("SSL://:9",)}, "SSL", 9),
        ],
    )
    def test_listener_has_the_set_name_or_that_of_the_protocol(
        self, settings: dict[str, str], name: str, port: int | None
    ) -> None:
        config = self.config(**settings)
        assert config.used_inter_broker_listener_name == name
        listener = config.inter_broker_listener()
        assert (None if listener is None else listener.port) == port

    def test_only_a_cluster_requires_the_listener(self) -> None:
        only_tls = self.config(security_inter_broker_protocol="SSL")
        assert list(cross_check(only_tls)) == []
        zookeeper = {"plog_metadata_store": "zookeeper", "zookeeper_connect": "zk:2181"}
        [(name, problem)] = cross_check(replace(only_tls, **zookeeper))
        assert name == "security.inter.broker.protocol"
        assert problem == (
            "listeners has no listener SSL for other brokers; add it, or set"
            " inter.broker.listener.name"
        )
        inside = self.config(inter_broker_listener_name="INSIDE", **zookeeper)
        assert list(cross_check(inside)) == []
