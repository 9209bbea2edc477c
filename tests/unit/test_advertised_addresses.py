"""The addresses that clients and other brokers get."""

from __future__ import annotations

import pytest

from plogd.advertised_addresses import AdvertisedAddresses
from plogd.config import load_config


def addresses(*settings: str) -> AdvertisedAddresses:
    return AdvertisedAddresses(load_config([], list(settings)).config)


@pytest.mark.parametrize("host", ["192.0.2.1", "::ffff:192.0.2.1"])
def test_client_gets_the_address_that_it_has_connected_to(host: str) -> None:
    found = addresses("listeners=PLAINTEXT://:9092").address_for("PLAINTEXT", (host, 9092))
    assert found == ("192.0.2.1", 9092)


def test_client_gets_the_advertised_address() -> None:
    configured = addresses(
        "listeners=PLAINTEXT://:9092", "advertised.listeners=PLAINTEXT://b1.example:19092"
    )
    assert configured.address_for("PLAINTEXT", ("192.0.2.1", 9092)) == ("b1.example", 19092)


@pytest.mark.parametrize(
    ("listener", "advertised", "expected"),
    [
        ("PLAINTEXT://:9092", "", ("machine", 9092)),
        ("PLAINTEXT://0.0.0.0:9092", "", ("machine", 9092)),
        ("PLAINTEXT://192.0.2.1:9092", "", ("192.0.2.1", 9092)),
        ("PLAINTEXT://:9092", "PLAINTEXT://b1.example:19092", ("b1.example", 19092)),
    ],
)
def test_other_brokers_get_an_address_that_they_can_reach(
    listener: str, advertised: str, expected: tuple[str, int]
) -> None:
    settings = [f"listeners={listener}"]
    if advertised:
        settings.append(f"advertised.listeners={advertised}")
    config = load_config([], settings).config
    [endpoint] = AdvertisedAddresses(config).endpoints(config.bound_listeners(), "machine")
    assert (endpoint.host, endpoint.port) == expected
