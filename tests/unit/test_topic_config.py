"""Topic settings: own values, fallbacks to the broker's settings, invalid values."""

from __future__ import annotations

import pytest

from plog.enums import ConfigSource
from plog.errors import InvalidConfig
from plog.settings import Setting, settings_of
from plogd.config import BrokerConfig, load_config
from plogd.topic_config import TopicConfig, describe, validate_overrides

ROWS = settings_of(TopicConfig)
BROKER_ROWS = settings_of(BrokerConfig)
every_row = pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
HOUR_MS = 3_600_000


def resolve(*broker: str, **overrides: str) -> TopicConfig:
    own = {name.replace("_", "."): text for name, text in overrides.items()}
    return TopicConfig.resolve(load_config([], broker).config, own)


def test_all_33_settings_of_kafka_are_known() -> None:
    assert len(ROWS) == 33
    assert list(ROWS) == sorted(ROWS)


@every_row
def test_attribute_is_the_name_with_underscores(row: Setting) -> None:
    assert getattr(TopicConfig(), row.attribute) == row.default


@every_row
def test_default_is_an_allowed_value(row: Setting) -> None:
    assert row.parse(row.format(row.default) or "") == row.default


@every_row
def test_setting_has_the_bounds_of_its_fallback(row: Setting) -> None:
    if row.synonyms:
        broker_row = BROKER_ROWS[row.synonyms[0][0]]
        assert (row.type, row.one_of) == (broker_row.type, broker_row.one_of)
        assert row.unit == broker_row.unit


def test_topic_has_defaults_when_broker_sets_nothing() -> None:
    assert TopicConfig.resolve(BrokerConfig(), {}) == TopicConfig()


def test_topic_falls_back_to_the_brokers_value() -> None:
    config = resolve("log.segment.bytes=2097152", "message.max.bytes=7", "log.flush.interval.ms=9")
    assert (config.segment_bytes, config.max_message_bytes, config.flush_ms) == (2097152, 7, 9)


def test_own_value_of_a_topic_takes_precedence() -> None:
    config = resolve("log.retention.ms=5", retention_ms="6", cleanup_policy="compact, delete")
    assert config.retention_ms == 6
    assert config.cleanup_policy == ("compact", "delete")


@pytest.mark.parametrize(
    ("broker", "expected_ms"),
    [
        (["log.retention.hours=2"], 2 * HOUR_MS),
        (["log.retention.hours=-1"], -1),
        (["log.retention.hours=2", "log.retention.minutes=3"], 180_000),
        (["log.retention.hours=2", "log.retention.minutes=3", "log.retention.ms=4"], 4),
        (["log.retention.hours=2", "log.retention.minutes=-1"], -1),
    ],
)
def test_finest_unit_set_by_the_broker_takes_precedence(
    broker: list[str], expected_ms: int
) -> None:
    assert resolve(*broker).retention_ms == expected_ms


def test_flush_interval_falls_back_to_the_schedulers_interval() -> None:
    assert resolve("log.flush.scheduler.interval.ms=70").flush_ms == 70
    assert resolve("log.flush.scheduler.interval.ms=70", "log.flush.interval.ms=80").flush_ms == 80


def test_unknown_name_does_not_prevent_loading_a_topic() -> None:
    assert TopicConfig.resolve(BrokerConfig(), {"colour": "red"}) == TopicConfig()


def test_invalid_value_is_refused_with_the_allowed_range() -> None:
    with pytest.raises(InvalidConfig, match=r"segment.bytes=1: too small; allowed: at least 104"):
        resolve(segment_bytes="1")


def test_all_invalid_overrides_are_listed_together() -> None:
    with pytest.raises(InvalidConfig) as caught:
        validate_overrides({"retention.m": "1", "flush.messages": "0", "segment.ms": None})
    assert str(caught.value) == (
        "retention.m is not a topic setting; did you mean retention.ms?;"
        " flush.messages=0: too small; allowed: at least 1;"
        " segment.ms has no value"
    )


@pytest.mark.parametrize(
    "overrides",
    [
        {"remote.storage.enable": "true"},
        {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
        {"cleanup.policy": "shred"},
        {"compression.type": "GZIP"},
    ],
)
def test_invalid_overrides_are_refused(overrides: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        validate_overrides(overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"cleanup.policy": "compact"},
        {"cleanup.policy": ""},
        {"retention.bytes": "-1", "retention.ms": "-1"},
        {"leader.replication.throttled.replicas": "*"},
    ],
)
def test_valid_overrides_are_accepted(overrides: dict[str, str]) -> None:
    validate_overrides(overrides)


def test_properties_for_cleanup_policy_and_timestamp_type() -> None:
    both = TopicConfig(cleanup_policy=("compact", "delete"))
    assert both.is_compacted
    assert both.deletes_old_segments
    assert not TopicConfig(cleanup_policy=("compact",)).deletes_old_segments
    assert TopicConfig(message_timestamp_type="LogAppendTime").uses_log_append_time
    assert not TopicConfig().uses_log_append_time


def test_own_value_is_described_before_the_brokers_and_the_default() -> None:
    broker = load_config([], ["log.retention.ms=5", "log.retention.hours=1"]).config
    entry = {e.name: e for e in describe(broker, {"retention.ms": " 6"})}["retention.ms"]
    assert (entry.value, entry.source) == ("6", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert [(s.name, s.value, s.source.name) for s in entry.synonyms] == [
        ("retention.ms", "6", "DYNAMIC_TOPIC_CONFIG"),
        ("log.retention.ms", "5", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "1", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "168", "DEFAULT_CONFIG"),
    ]


def test_value_from_the_broker_is_described_with_its_source() -> None:
    broker = load_config([], ["log.roll.hours=2"]).config
    entries = {e.name: e for e in describe(broker, {})}
    assert entries["segment.ms"].value == str(2 * HOUR_MS)
    assert entries["segment.ms"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["flush.messages"].source is ConfigSource.DEFAULT_CONFIG
    assert entries["flush.messages"].value == "1"
    assert entries["local.retention.ms"].synonyms == ()
    assert not any(entry.read_only or entry.sensitive for entry in entries.values())


def test_described_values_are_the_effective_ones() -> None:
    broker = load_config([], ["log.roll.jitter.hours=1", "log.retention.minutes=-1"]).config
    overrides = {"compression.type": "zstd"}
    config = TopicConfig.resolve(broker, overrides)
    for entry in describe(broker, overrides):
        row = ROWS[entry.name]
        assert entry.value == row.format(getattr(config, row.attribute))


@pytest.mark.parametrize("name", [row for row in ROWS if row.endswith(".throttled.replicas")])
def test_throttled_replicas_are_a_star_or_a_list(name: str) -> None:
    for text in ("*", "0:1", "0:1, 12:345", ""):
        validate_overrides({name: text})
    for text in ("1", "*,0:1", "0:1,*", "0:-1", "0:1:2", "٣:1", "all"):
        with pytest.raises(InvalidConfig, match=name):
            validate_overrides({name: text})


def test_number_of_reported_problems_is_bounded() -> None:
    with pytest.raises(InvalidConfig) as error:
        validate_overrides({f"no.such.name.{number}": "1" for number in range(100_000)})
    assert error.value.message.count("is not a topic setting") == 20
