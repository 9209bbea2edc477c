"""Rules between a consumer's settings: group, commits, offset reset and fetches."""

from __future__ import annotations

import pytest

from plog.client.settings import ConfigError, ConsumerSettings, OffsetReset

JAVA = "org.apache.kafka.clients.consumer."


def _settings(**keywords: object) -> ConsumerSettings:
    return ConsumerSettings.from_options(bootstrap_servers="localhost", **keywords)


def test_auto_commit_is_off_without_a_group() -> None:
    assert _settings().enable_auto_commit is False
    assert _settings(group_id="g").enable_auto_commit is True
    with pytest.raises(ConfigError, match=r"enable_auto_commit=True: requires a group\.id"):
        _settings(enable_auto_commit=True)


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("earliest", OffsetReset("earliest")),
        ("largest", OffsetReset("latest")),
        ("none", OffsetReset("none")),
        ("by_duration:P1DT1H", OffsetReset("by_duration", 25 * 3_600_000)),
        ("by_duration:PT0S", OffsetReset("by_duration", 0)),
    ],
)
def test_offset_reset_values_are_parsed(text: str, reset: OffsetReset) -> None:
    assert _settings(auto_offset_reset=text).offset_reset == reset


@pytest.mark.parametrize(
    "text", ["", "Earliest", "by_duration", "by_duration:", "by_duration:1h", "by_duration:-PT1S"]
)
def test_invalid_offset_reset_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="auto_offset_reset="):
        _settings(auto_offset_reset=text)


def test_assignors_accept_java_class_names() -> None:
    settings = _settings(
        partition_assignment_strategy=f"{JAVA}StickyAssignor,roundrobin, RangeAssignor"
    )
    assert settings.partition_assignment_strategy == ("sticky", "roundrobin", "range")
    with pytest.raises(ConfigError, match="not one of the allowed values"):
        _settings(partition_assignment_strategy="com.example.Mine")
    with pytest.raises(ConfigError, match="has a duplicate entry"):
        _settings(partition_assignment_strategy=["range", "RangeAssignor"])
    with pytest.raises(ConfigError, match="at least one assignor"):
        _settings(partition_assignment_strategy=[])


def test_heartbeat_interval_must_be_below_session_timeout() -> None:
    with pytest.raises(ConfigError, match=r"heartbeat.interval.ms=3000 \(the default\): must be"):
        _settings(session_timeout_ms=3000)
    assert _settings(session_timeout_ms=3001).session_timeout_ms == 3001


def test_fetch_wait_must_be_below_request_timeout() -> None:
    with pytest.raises(ConfigError, match=r"below request.timeout.ms \(30000\)"):
        _settings(fetch_max_wait_ms=30_000)


def test_unreachable_fetch_minimum_causes_a_warning() -> None:
    assert "every fetch waits" in _settings(fetch_min_bytes=2, fetch_max_bytes=1).warnings[0]


@pytest.mark.parametrize("name", ["", ".", "a b", "x" * 250])
def test_instance_id_follows_topic_name_rules(name: str) -> None:
    with pytest.raises(ConfigError, match="allowed: 1 to 249"):
        _settings(group_id="g", group_instance_id=name)


def test_empty_group_id_is_refused() -> None:
    with pytest.raises(ConfigError, match="omit it"):
        _settings(group_id="")


def test_consumer_group_protocol_is_refused() -> None:
    assert _settings(group_protocol="CLASSIC").group_protocol == "classic"
    with pytest.raises(ConfigError, match="allowed: classic"):
        _settings(group_protocol="consumer")
