"""The settings tables of all clients: names, defaults and common settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from plog.client.settings import (
    Address,
    AdminSettings,
    ClientSettings,
    ConfigError,
    ConsumerSettings,
    ProducerSettings,
)
from plog.client.settings.unsupported_settings import ONLY_ADMINS, ONLY_CONSUMERS, ONLY_PRODUCERS
from plog.settings import settings_of

KINDS = [ClientSettings, ProducerSettings, ConsumerSettings, AdminSettings]
SERVERS = "localhost:9092"


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_the_name_of_its_kafka_setting(kind: type[ClientSettings]) -> None:
    not_settings = {"sasl_oauthbearer_token", "explicit", "warnings"}
    fields = {each.name for each in dataclasses.fields(kind)} - not_settings
    assert fields == {row.attribute for row in settings_of(kind).values()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_default_is_an_allowed_value(kind: type[ClientSettings]) -> None:
    for row in settings_of(kind).values():
        if row.default is not None:
            text = row.format(row.default)
            assert text is not None
            assert row.parse(text) == row.default, row.name


def test_setting_of_one_client_is_known_to_the_others() -> None:
    common = set(settings_of(ClientSettings))
    assert set(settings_of(ProducerSettings)) - common == ONLY_PRODUCERS
    assert set(settings_of(ConsumerSettings)) - common == ONLY_CONSUMERS
    assert set(settings_of(AdminSettings)) - common == ONLY_ADMINS


def test_default_batch_size_is_larger_than_in_kafka() -> None:
    """The records of a batch share its cost, which is higher in Python (docs/decisions/0013)."""
    assert ProducerSettings.from_options(bootstrap_servers=SERVERS).batch_size == 131072


def test_other_defaults_are_the_same_as_in_kafka() -> None:
    producer = ProducerSettings.from_options(bootstrap_servers=SERVERS)
    assert (producer.acks, producer.enable_idempotence, producer.linger_ms) == ("all", True, 5)
    assert (producer.buffer_memory, producer.max_request_size) == (33554432, 1048576)
    assert (producer.receive_buffer_bytes, producer.delivery_timeout_ms) == (32768, 120_000)
    consumer = ConsumerSettings.from_options(bootstrap_servers=SERVERS, group_id="g")
    assert (consumer.fetch_max_bytes, consumer.max_poll_records) == (52428800, 500)
    assert (consumer.session_timeout_ms, consumer.receive_buffer_bytes) == (45_000, 65536)
    assert consumer.partition_assignment_strategy == ("range", "cooperative-sticky")
    assert AdminSettings.from_options(bootstrap_servers=SERVERS).connections_max_idle_ms == 300_000
    assert consumer.connections_max_idle_ms == 540_000


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap.servers is not set: set one or more"):
        ClientSettings.from_options()


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (["a:1", " b:2 "], [("a", 1), ("b", 2)]),
        ("a", [("a", 9092)]),
        ("[::1]:1,[fe80::1%eth0]", [("::1", 1), ("fe80::1%eth0", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_bootstrap_servers_are_parsed(servers: object, addresses: list[tuple[str, int]]) -> None:
    settings = ClientSettings.from_options(bootstrap_servers=servers)
    assert list(settings.bootstrap_addresses()) == [Address(*each) for each in addresses]


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ("a:b", "does not have the form host:port"),
        ("::1:9092", "does not have the form host:port"),
        ("a:0", "invalid port 0"),
        ("a:65536", "invalid port 65536"),
        ("a:1,,b:2", "has an empty entry"),
        ("a:1,a:1", "has a duplicate entry"),
        ("SSL://a:1", "starts with SSL, but security.protocol is PLAINTEXT"),
        ({"a": 1}, "a dict is not a list"),
    ],
)
def test_invalid_bootstrap_server_is_named_in_the_error(servers: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ClientSettings.from_options(bootstrap_servers=servers)


def test_backoff_without_maximum_is_constant_as_in_kafka() -> None:
    settings = ClientSettings.from_options(bootstrap_servers=SERVERS, reconnect_backoff_ms=700)
    assert (settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms) == (700, 700)
    both = ClientSettings.from_options(
        bootstrap_servers=SERVERS, reconnect_backoff_ms=700, reconnect_backoff_max_ms=900
    )
    assert both.reconnect_backoff_max_ms == 900


def test_backoff_above_its_maximum_is_a_warning() -> None:
    settings = ClientSettings.from_options(bootstrap_servers=SERVERS, retry_backoff_ms=5000)
    assert settings.warnings == (
        "retry.backoff.ms=5000 exceeds retry.backoff.max.ms=1000, which limits it",
    )


def test_repr_hides_secrets(tmp_path: Path) -> None:
    settings = ClientSettings.from_options(
        bootstrap_servers=SERVERS,
        security_protocol="sasl_ssl",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="hunter2",
        ssl_key_password="hunter2",
    )
    assert "alice" in repr(settings)
    assert "hunter2" not in repr(settings)
