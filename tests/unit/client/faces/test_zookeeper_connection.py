"""The connection to ZooKeeper that a face creates from its settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from plog.client.faces.zookeeper_connection import make_zookeeper
from plog.client.settings import ConsumerSettings
from plog.settings import ConfigError
from plog.zookeeper.deferred_result import DeferredResult
from plog.zookeeper.kazoo_client import KazooZooKeeper
from tests.helpers.certificates import Authority


def settings(**options: object) -> ConsumerSettings:
    return ConsumerSettings.from_options(
        bootstrap_servers="b:1",
        group_id="g",
        coordination="zookeeper",
        zookeeper_connect="zk1:2181, zk2:2181/kafka",
        **options,
    )


class Reactor:
    """A reactor that is not used before `start`."""


def test_broker_coordination_needs_no_connection() -> None:
    made = ConsumerSettings.from_options(bootstrap_servers="b:1", group_id="g")
    assert make_zookeeper(made, Reactor()) is None


def test_connection_has_the_settings() -> None:
    client: Any = make_zookeeper(settings(zookeeper_session_timeout_ms=3_000), Reactor())
    assert isinstance(client, KazooZooKeeper)
    assert client.hosts == "zk1:2181,zk2:2181/kafka"
    assert client.session_timeout_ms == 3_000
    assert client._new_pending is DeferredResult
    assert client._sockets._security is None


def test_tls_settings_reach_the_connection(tmp_path: Path) -> None:
    Authority().truststore(tmp_path / "ca.pem")
    client: Any = make_zookeeper(
        settings(
            zookeeper_ssl_client_enable=True,
            zookeeper_ssl_truststore_location=str(tmp_path / "ca.pem"),
        ),
        Reactor(),
    )
    security = client._sockets._security
    assert security is not None
    assert security.make_ssl_context().verify_mode.name == "CERT_REQUIRED"


def test_missing_kazoo_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plog.zookeeper.kazoo_client", None)
    with pytest.raises(ConfigError, match="requires the Python package kazoo") as caught:
        make_zookeeper(settings(), Reactor())
    assert "apt install python3-kazoo, or pip install kazoo" in str(caught.value)
