"""Rules between a producer's settings: idempotence and delivery timeout."""

from __future__ import annotations

import pytest

from plog.client.settings import ConfigError, ProducerSettings


def _settings(**keywords: object) -> ProducerSettings:
    return ProducerSettings.from_options(bootstrap_servers="localhost", **keywords)


@pytest.mark.parametrize(("acks", "number"), [("all", -1), ("-1", -1), (-1, -1), (0, 0), ("1", 1)])
def test_acks_are_sent_as_numbers(acks: object, number: int) -> None:
    assert _settings(acks=acks).required_acks == number


@pytest.mark.parametrize("others", [{"acks": "1"}, {"acks": 0}, {"retries": 0}])
def test_conflicting_settings_disable_default_idempotence(others: dict[str, object]) -> None:
    settings = _settings(**others)
    assert settings.enable_idempotence is False
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ({"acks": "1"}, "acks=1: enable.idempotence requires acks=all"),
        ({"retries": 0}, "retries=0: enable.idempotence requires retries above 0"),
    ],
)
def test_explicit_idempotence_is_not_disabled(others: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        _settings(enable_idempotence=True, **others)


def test_idempotence_limits_requests_in_flight() -> None:
    for keywords in ({}, {"enable_idempotence": True}):
        with pytest.raises(ConfigError, match=r"=6: enable\.idempotence allows at most 5"):
            _settings(max_in_flight_requests_per_connection=6, **keywords)
    for keywords in ({"enable_idempotence": False}, {"acks": "1"}):
        settings = _settings(max_in_flight_requests_per_connection=6, **keywords)
        assert settings.max_in_flight_requests_per_connection == 6


def test_delivery_timeout_covers_linger_and_request_timeout() -> None:
    with pytest.raises(ConfigError, match=r"delivery_timeout_ms=30000: is below 30005"):
        _settings(delivery_timeout_ms=30_000)
    assert _settings(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005


def test_default_delivery_timeout_follows_linger_and_request_timeout() -> None:
    settings = _settings(linger_ms=100_000)
    assert settings.delivery_timeout_ms == 130_000
    assert "delivery.timeout.ms is raised to 130000" in settings.warnings[0]
    assert _settings(linger_ms=2**40).delivery_timeout_ms == 2**31 - 1


@pytest.mark.parametrize(
    "name", ["RoundRobinPartitioner", "org.apache.kafka.clients.producer.RoundRobinPartitioner"]
)
def test_java_default_partitioner_is_accepted(name: str) -> None:
    assert _settings(partitioner_class=name).partitioner_class == "RoundRobinPartitioner"


def test_other_java_partitioner_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"partitioner_class=com\.example\.Mine: not one"):
        _settings(partitioner_class="com.example.Mine")


def test_transactions_require_idempotence() -> None:
    assert _settings(transactional_id="shop").enable_idempotence
    for wrong in ({"acks": 1}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}):
        with pytest.raises(ConfigError, match=r"enable\.idempotence (requires|allows)"):
            _settings(transactional_id="shop", **wrong)
    with pytest.raises(ConfigError, match=r"is required by transactional\.id"):
        _settings(transactional_id="shop", enable_idempotence=False)
    with pytest.raises(ConfigError, match="is empty"):
        _settings(transactional_id="")
    with pytest.raises(ConfigError, match="transaction_timeout_ms"):
        _settings(transactional_id="shop", transaction_timeout_ms=0)
