"""Parsing ``listeners``, ``advertised.listeners`` and the protocol map."""

from __future__ import annotations

import pytest

from plogd.config.listener import (
    Listener,
    advertised_listeners,
    bound_listeners,
    parse_listener,
    parse_protocol_map,
)

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "INSIDE": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://:9092", "", 9092),
        ("PLAINTEXT://0.0.0.0:0", "0.0.0.0", 0),
        ("plaintext://host-1.example:65535", "host-1.example", 65535),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        ("PLAINTEXT://[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
    ],
)
def test_listener_has_a_name_a_host_and_a_port(text: str, host: str, port: int) -> None:
    expected = Listener(name="PLAINTEXT", host=host, port=port, protocol="PLAINTEXT")
    assert parse_listener(text, PROTOCOLS) == expected


@pytest.mark.parametrize("text", ["INSIDE://[::1]:9", "INSIDE://a:9", "INSIDE://:9"])
def test_listener_is_formatted_as_written(text: str) -> None:
    assert str(parse_listener(text, PROTOCOLS)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:9092",
        "PLAINTEXT://localhost",
        "PLAINTEXT://::1:9092",
        "PLAINTEXT://[localhost]:9092",
        "PLAINTEXT://a:65536",
        "PLAINTEXT://a:-1",
        "PLAINTEXT://a b:1",
        "OTHER://a:1",
    ],
)
def test_invalid_listener_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        parse_listener(text, PROTOCOLS)


def test_protocol_map_ignores_case() -> None:
    assert parse_protocol_map("") == {}
    assert parse_protocol_map("a:plaintext,B:SASL_SSL") == {"A": "PLAINTEXT", "B": "SASL_SSL"}


@pytest.mark.parametrize("text", ["A", "A:", ":SSL", "A:TLS", "A:SSL,a:SSL", "A:SSL,"])
def test_invalid_protocol_map_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        parse_protocol_map(text)


def bind(*texts: str, skipped: tuple[str, ...] = ()) -> tuple[Listener, ...]:
    return bound_listeners(texts, PROTOCOLS, skipped)


@pytest.mark.parametrize("text", ["SASL_PLAINTEXT://:1", "SASL_SSL://:1"])
def test_sasl_listener_is_rejected(text: str) -> None:
    protocols = {name: name for name in ("SASL_PLAINTEXT", "SASL_SSL")}
    with pytest.raises(ValueError, match="is not supported; use PLAINTEXT or SSL"):
        bound_listeners([text], protocols, ())


def test_ipv4_and_ipv6_address_may_share_name_and_port() -> None:
    assert len(bind("PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://[::1]:9092")) == 2


@pytest.mark.parametrize(
    "texts",
    [
        ("PLAINTEXT://a:1", "INSIDE://b:1"),
        ("PLAINTEXT://a:1", "PLAINTEXT://a:2"),
        ("PLAINTEXT://127.0.0.1:1", "INSIDE://127.0.0.2:1"),
        ("PLAINTEXT://127.0.0.1:1", "PLAINTEXT://[::1]:1", "PLAINTEXT://[::2]:1"),
    ],
)
def test_listeners_with_the_same_name_or_port_are_rejected(texts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError):
        bind(*texts)


def test_several_listeners_may_use_port_0() -> None:
    assert [x.port for x in bind("PLAINTEXT://:0", "INSIDE://:0")] == [0, 0]


def test_controller_listener_is_not_opened() -> None:
    opened = bind("PLAINTEXT://:1", "CONTROLLER://:2", skipped=("controller",))
    assert [x.name for x in opened] == ["PLAINTEXT"]


def test_listeners_without_one_for_clients_are_rejected() -> None:
    with pytest.raises(ValueError, match="does not contain a listener for clients"):
        bind("CONTROLLER://:2", skipped=("CONTROLLER",))


def advertise(*texts: str) -> dict[str, Listener]:
    opened = bind("PLAINTEXT://:1", "INSIDE://:2")
    return advertised_listeners(texts, opened, PROTOCOLS, ("CONTROLLER",))


def test_listeners_are_advertised_by_name_and_may_share_a_port() -> None:
    advertised = advertise("PLAINTEXT://a:7", "INSIDE://b:7", "CONTROLLER://c:7")
    assert {name: x.host for name, x in advertised.items()} == {"PLAINTEXT": "a", "INSIDE": "b"}


@pytest.mark.parametrize(
    "texts",
    [
        ("SSL://a:1",),
        ("PLAINTEXT://0.0.0.0:1",),
        ("PLAINTEXT://[::]:1",),
        ("PLAINTEXT://a:1", "PLAINTEXT://b:1"),
    ],
)
def test_unusable_advertised_listeners_are_rejected(texts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError):
        advertise(*texts)
