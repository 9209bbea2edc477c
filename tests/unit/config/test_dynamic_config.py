"""Broker settings that clients change at run time: precedence and validation."""

from __future__ import annotations

import pytest

from plog.enums import ConfigSource
from plog.errors import InvalidConfig, InvalidRequest, KafkaError
from plogd.config import DynamicSettings, load_config
from plogd.config.broker_config import BrokerConfig
from plogd.config.dynamic_config import (
    PROBLEMS_MAX,
    broker_id_of,
    check_change,
    describe_changes,
    describe_cluster,
    overlay,
)

STATIC = load_config([], ["message.max.bytes=1000", "num.partitions=3"]).config
CLUSTER, BROKER = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG


def dynamic(cluster: dict[str, str], broker: dict[str, str] | None = None) -> DynamicSettings:
    return DynamicSettings(cluster=cluster, broker=broker or {})


def used(cluster: dict[str, str], broker: dict[str, str] | None = None) -> BrokerConfig:
    config, problems = overlay(STATIC, dynamic(cluster, broker))
    assert problems == []
    return config


def refused(new: dict[str, str], *, one_broker: bool = True) -> KafkaError:
    with pytest.raises((InvalidRequest, InvalidConfig)) as caught:
        check_change(STATIC, {}, new, one_broker=one_broker)
    return caught.value


def test_broker_value_overrides_cluster_value_and_cluster_value_overrides_file() -> None:
    assert STATIC.message_max_bytes == 1000
    assert used({"message.max.bytes": "2000"}).message_max_bytes == 2000
    both = used({"message.max.bytes": "2000"}, {"message.max.bytes": "3000"})
    assert both.message_max_bytes == 3000
    [entry] = [one for one in both.describe() if one.name == "message.max.bytes"]
    assert (entry.value, entry.source) == ("3000", BROKER)
    assert [(one.value, one.source) for one in entry.synonyms] == [
        ("3000", BROKER),
        ("2000", CLUSTER),
        ("1000", ConfigSource.STATIC_BROKER_CONFIG),
        ("1048588", ConfigSource.DEFAULT_CONFIG),
    ]


def test_unchanged_settings_keep_their_source() -> None:
    entries = {one.name: one for one in used({"message.max.bytes": "2000"}).describe()}
    assert entries["num.partitions"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["log.segment.bytes"].source is ConfigSource.DEFAULT_CONFIG


def test_describe_cluster_returns_only_cluster_values() -> None:
    config = used({"message.max.bytes": "2000"}, {"message.max.bytes": "3000"})
    [entry] = describe_cluster(config)
    assert (entry.name, entry.value, entry.source) == ("message.max.bytes", "2000", CLUSTER)
    assert [(one.value, one.source) for one in entry.synonyms] == [("2000", CLUSTER)]
    assert describe_cluster(STATIC) == []


def test_overlay_ignores_and_reports_values_that_are_no_longer_valid() -> None:
    texts = {"message.max.bytes": "many", "gone": "1", "log.dirs": "/x", "max.connections": "7"}
    config, problems = overlay(STATIC, dynamic(texts))
    assert (config.message_max_bytes, config.max_connections) == (1000, 7)
    assert len(problems) == 3
    assert config.dynamic.names == {"max.connections"}


def test_overlay_without_dynamic_values_returns_the_static_configuration() -> None:
    assert overlay(STATIC, dynamic({})) == (STATIC, [])


@pytest.mark.parametrize(
    ("new", "error", "parts"),
    [
        ({"max.connections": "-1"}, InvalidRequest, ["max.connections=-1", "at least 1"]),
        ({"log.retention.ms": "soon"}, InvalidRequest, ["=soon: not a whole number", "-1, or"]),
        ({"num.partitions": "2"}, InvalidRequest, ["num.partitions", "restart the broker"]),
        ({"log.retention.hours": "2"}, InvalidRequest, ["log.retention.hours", "SIGHUP"]),
        ({"log.retention.mss": "2"}, InvalidConfig, ["did you mean log.retention.ms?"]),
        ({"background.threads": "2"}, InvalidConfig, ["Kafka setting that plog does not use yet"]),
        (
            {"num.partitions": "2", "max.connections": "x"},
            InvalidRequest,
            ["num.partitions", "max.connections=x"],
        ),
    ],
)
def test_rejected_changes_name_the_setting_and_the_remedy(
    new: dict[str, str], error: type[KafkaError], parts: list[str]
) -> None:
    for one_broker in (True, False):
        problem = refused(new, one_broker=one_broker)
        assert type(problem) is error
        assert all(part in str(problem) for part in parts), str(problem)


def test_earlier_invalid_values_do_not_prevent_other_changes() -> None:
    old = {"gone": "1"}
    check_change(STATIC, old, {**old, "max.connections": "5"}, one_broker=True)


@pytest.mark.parametrize(("name", "broker_id"), [("1", 1), ("+1", 1), ("01", 1), ("-3", -3)])
def test_broker_id_of_parses_integers(name: str, broker_id: int) -> None:
    assert broker_id_of(name) == broker_id


@pytest.mark.parametrize("name", ["", "one", "1_0", " 1", "١"])
def test_broker_id_of_rejects_other_names(name: str) -> None:
    with pytest.raises(InvalidRequest, match="must be an integer"):
        broker_id_of(name)


def test_describe_changes_lists_changed_and_removed_names() -> None:
    assert describe_changes({"a": "1", "c": "3"}, {"a": "1", "b": "2"}) == "b=2, c removed"


def test_number_of_reported_problems_is_limited() -> None:
    error = refused({f"no.such.name.{number}": "1" for number in range(100_000)})
    assert isinstance(error, InvalidConfig)
    assert error.message.count("is not a setting") == PROBLEMS_MAX


@pytest.mark.parametrize("digits", [11, 5_000])
def test_broker_id_of_rejects_numbers_that_are_too_long(digits: int) -> None:
    with pytest.raises(InvalidRequest, match="must be an integer"):
        broker_id_of("1" * digits)


def test_describe_changes_truncates_long_values() -> None:
    assert len(describe_changes({}, {"a": "x" * 100_000})) < 1_100
