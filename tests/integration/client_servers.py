"""Fixtures that start plog and Apache Kafka for the client library's tests, plaintext and TLS.

conftest.py imports them for all files. Each broker has a listener of both kinds, so two brokers
are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from plogd.testing.plugin import BrokerFactory
from tests.helpers.certificates import Authority
from tests.helpers.programs.apache_kafka import ApacheKafka
from tests.helpers.programs.kafka_server import free_port

KINDS = ("plog", "kafka")
WITH_TLS = ("plog-tls", "kafka-tls")


@dataclass(frozen=True, slots=True)
class Server:
    """A listener of a broker; `settings` are the client options that connect to it."""

    name: str
    settings: dict[str, Any]


@pytest.fixture(scope="session")
def plog_servers(
    plog_broker_factory: BrokerFactory,
    authority: Authority,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Server]:
    """Start plog with two listeners."""
    folder = tmp_path_factory.mktemp("plog-servers")
    keystore = authority.server().keystore(folder / "broker.pem")
    broker = plog_broker_factory(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "ssl.keystore.location": str(keystore),
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
        }
    )
    plain, encrypted = broker.addresses
    ca = str(authority.truststore(folder / "ca.pem"))
    return _servers("plog", plain, encrypted, ca)


@pytest.fixture(scope="session")
def kafka_servers(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Server]]:
    """Start Apache Kafka with two listeners."""
    folder = tmp_path_factory.mktemp("kafka-servers")
    keystore = authority.server().keystore(folder / "broker.pem")
    port = free_port()
    kafka = ApacheKafka(
        folder,
        {
            "auto.create.topics.enable": "false",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
        },
        tls_port=port,
    )
    ca = str(authority.truststore(folder / "ca.pem"))
    try:
        yield _servers("kafka", kafka.bootstrap_servers, f"127.0.0.1:{port}", ca)
    finally:
        kafka.stop()


def _servers(name: str, plain: str, encrypted: str, ca: str) -> dict[str, Server]:
    tls = {"security_protocol": "SSL", "ssl_truststore_location": ca}
    return {
        name: Server(name, {"bootstrap_servers": plain}),
        f"{name}-tls": Server(f"{name}-tls", {"bootstrap_servers": encrypted, **tls}),
    }


def server_of(request: pytest.FixtureRequest, name: str) -> Server:
    """Return the server with that name; the first use of its broker starts it."""
    servers: dict[str, Server] = request.getfixturevalue(f"{name.removesuffix('-tls')}_servers")
    return servers[name]
