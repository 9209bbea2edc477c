"""The table of the broker's settings as a whole, and how DescribeConfigs shows it."""

from __future__ import annotations

import pytest

from plog.enums import ConfigSource
from plog.settings import Setting, settings_of
from plogd.config import BrokerConfig, ConfigSynonym, SettingType, load_config
from plogd.config.known_settings import KAFKA_4_NAMES

ROWS = settings_of(BrokerConfig)
every_row = pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)

# Where Kafka's default is another: docs/configuration.md says why at each of them.
OUR_DEFAULTS = {
    "log.flush.interval.messages": 1,
    "node.id": 1,
    "queued.max.request.bytes": 128 * 2**20,
    "socket.listen.backlog.size": 4096,
}


@every_row
def test_the_attribute_is_the_name_with_underscores(row: Setting) -> None:
    assert getattr(BrokerConfig(), row.attribute) == row.default


@every_row
def test_the_default_is_allowed(row: Setting) -> None:
    text = row.format(row.default)
    if text is not None:
        assert row.parse(text) == row.default


@every_row
def test_a_name_is_kafkas_or_starts_with_plog(row: Setting) -> None:
    assert (row.name in KAFKA_4_NAMES) != row.name.startswith("plog.")
    assert set(row.aliases) <= KAFKA_4_NAMES


@every_row
def test_a_setting_says_what_it_does_and_names_its_unit(row: Setting) -> None:
    assert row.doc.endswith((".", "`."))
    for unit in ("ms", "bytes", "hours", "minutes"):
        if row.name.endswith("." + unit):
            assert row.unit == unit


def test_defaults_that_are_ours() -> None:
    assert {name: ROWS[name].default for name in OUR_DEFAULTS} == OUR_DEFAULTS


def test_without_log_dirs_the_data_goes_to_the_working_directory() -> None:
    assert BrokerConfig().data_dirs == ("./plog-data",)
    assert BrokerConfig(log_dirs=("/a", "/b")).data_dirs == ("/a", "/b")


def test_the_default_listener_takes_every_interface_and_advertises_nothing() -> None:
    assert [str(x) for x in BrokerConfig().bound_listeners()] == ["PLAINTEXT://:9092"]
    assert BrokerConfig().advertised_by_name() == {}


def test_a_default_is_described_as_one() -> None:
    entry = {e.name: e for e in BrokerConfig().describe()}["num.partitions"]
    assert (entry.value, entry.source) == ("1", ConfigSource.DEFAULT_CONFIG)
    assert (entry.type, entry.read_only, entry.sensitive) == (SettingType.INT, True, False)
    assert entry.synonyms == (
        ConfigSynonym(name="num.partitions", value="1", source=ConfigSource.DEFAULT_CONFIG),
    )


def test_a_value_somebody_set_is_static_even_if_it_is_the_default() -> None:
    config = load_config([], ["num.partitions=1", "log.segment.bytes=2097152"]).config
    entries = {e.name: e for e in config.describe()}
    assert entries["num.partitions"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["log.segment.bytes"].value == "2097152"
    assert not entries["log.segment.bytes"].read_only
    assert [s.source for s in entries["log.segment.bytes"].synonyms] == [
        ConfigSource.STATIC_BROKER_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    ]


def test_what_is_not_set_is_described_as_null() -> None:
    entry = {e.name: e for e in BrokerConfig().describe()}["log.retention.ms"]
    assert (entry.value, entry.source, entry.synonyms) == (None, ConfigSource.DEFAULT_CONFIG, ())
