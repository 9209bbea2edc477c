"""Errors and warnings for settings and usage of other Kafka clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plog.client.faces import asyncio as asyncio_face
from plog.client.faces import blocking
from plog.client.faces import twisted as twisted_face
from plog.client.settings import AdminSettings, ConfigError, ConsumerSettings, ProducerSettings
from plog.client.settings.other_client_names import OTHER_CLIENTS
from plog.client.settings.unsupported_settings import REFUSED, why_without_effect
from plog.settings import settings_of

SERVERS = {"bootstrap.servers": "localhost:9092"}
TABLES = (ProducerSettings, ConsumerSettings, AdminSettings)

KAFKA_PYTHON_DEFAULTS: dict[str, object] = {
    "api_version": None,
    "bootstrap_timeout_ms": None,
    "consumer_timeout_ms": float("inf"),
    "kafka_client": None,
    "metric_group_prefix": "consumer",
    "metric_reporters": [],
    "metrics_enabled": True,
    "proxy_url": None,
    "socket_options": [],
    "ssl_check_hostname": True,
    "ssl_context": None,
    "enable_incremental_fetch_sessions": True,
}


def _problem(name: str, value: object) -> str:
    with pytest.raises(ConfigError) as caught:
        ConsumerSettings.from_options({**SERVERS, name: value})
    (problem,) = caught.value.problems
    return problem


def test_table_has_no_settings_and_no_duplicates() -> None:
    for table in TABLES:
        for row in settings_of(table).values():
            assert not {row.name, *row.aliases} & OTHER_CLIENTS.keys()
    for name in OTHER_CLIENTS:
        assert name not in REFUSED
        assert why_without_effect(name) is None


def test_advice_names_an_existing_setting() -> None:
    known = {name for table in TABLES for name in settings_of(table)}
    for name, row in OTHER_CLIENTS.items():
        if row.kind == "renamed":
            words = row.advice.replace(",", " ").split()
            assert known & set(words), name


def test_refused_name_has_a_remedy() -> None:
    assert "consume(timeout_s=…) returns" in _problem("consumer_timeout_ms", 1000)
    assert "commit({partition: offset})" in _problem("enable.auto.offset.store", False)
    assert "to each send" in _problem("on_delivery", print)
    assert "always verified" in _problem("enable.ssl.certificate.verification", "false")
    assert "to an empty string" in _problem("ssl_check_hostname", False)
    assert _problem("socks5_proxy", "socks5://x:1").startswith(
        "socks5_proxy: proxies are not supported"
    )


def test_renamed_setting_is_suggested_in_the_same_style() -> None:
    assert _problem("rebalance_timeout_ms", 1) == ("rebalance_timeout_ms: use max_poll_interval_ms")
    assert _problem("socket.timeout.ms", 1) == "socket.timeout.ms: use request.timeout.ms"


def test_harmless_name_is_only_a_warning() -> None:
    made = ConsumerSettings.from_options(
        {**SERVERS, "queued.max.messages.kbytes": 1000, "error_cb": print}
    )
    assert made.warnings == (
        "queued.max.messages.kbytes has no effect: fetch.max.bytes limits the records that are"
        " fetched ahead",
        "error_cb has no effect: calls raise their errors; other errors are logged to plog.client",
    )


def test_repeated_defaults_cause_no_warning() -> None:
    made = ConsumerSettings.from_options(SERVERS, **KAFKA_PYTHON_DEFAULTS)
    assert made.warnings == ()
    made = ConsumerSettings.from_options(
        {**SERVERS, "enable.auto.offset.store": True, "enable.partition.eof": "false"}
    )
    assert made.warnings == ()


def test_names_of_other_clients_in_file_are_only_warnings(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=a:1\nsocket.timeout.ms=5\nqueued.min.messages=1\n")
    assert ConsumerSettings.from_file(path).warnings == (
        f"{path}:2: socket.timeout.ms is not a setting of this client: use request.timeout.ms",
        f"{path}:3: queued.min.messages has no effect: fetch.max.bytes limits the records"
        " that are fetched ahead",
    )


@pytest.mark.parametrize("face", [blocking, asyncio_face])
def test_constructor_refuses_settings_or_lists_as_topics(face: Any) -> None:
    with pytest.raises(TypeError, match=r"pass settings as config=\{…\} or as keywords"):
        face.Consumer({"bootstrap.servers": "localhost:9092", "group.id": "g"})
    with pytest.raises(TypeError, match=r"separate argument: Consumer\('a', 'b', …\)"):
        face.Consumer(["a", "b"], bootstrap_servers="localhost:9092")


@pytest.mark.parametrize("face", [blocking, asyncio_face, twisted_face])
def test_serializer_that_cannot_be_called_is_refused_at_construction(face: Any) -> None:
    with pytest.raises(TypeError, match="value_serializer is 'json': pass a function that"):
        face.Producer(bootstrap_servers="localhost:9092", value_serializer="json")
    with pytest.raises(TypeError, match="key_deserializer is 'utf-8': pass a function that"):
        face.Consumer("t", bootstrap_servers="localhost:9092", key_deserializer="utf-8")
