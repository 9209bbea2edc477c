"""The settings of the connection to ZooKeeper."""

from __future__ import annotations

import pytest

from plog.client.network.tls_context import Security
from plog.settings import ConfigError
from plog.zookeeper.kazoo_client import KazooZooKeeper
from plog.zookeeper.tls_settings import security_of
from plog.zookeeper_settings import connect_problem, tls_properties
from plogd.config import BrokerConfig, load_config
from plogd.ports import Later

STORE = "plog.metadata.store=zookeeper"
CONNECT = "zookeeper.connect=zk1:2181,zk2/kafka"
TLS = "zookeeper.ssl.client.enable=true"


def load(*assignments: str) -> BrokerConfig:
    loaded = load_config([], assignments)
    assert loaded.warnings == ()
    return loaded.config


def problem(*assignments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config([], assignments)
    [only] = caught.value.problems
    return only


def test_defaults_are_those_of_kafka() -> None:
    config = load(STORE, CONNECT)
    assert not config.has_embedded_store
    assert config.zookeeper_connect == "zk1:2181,zk2/kafka"
    assert config.zookeeper_session_timeout_ms == 18_000
    assert config.zookeeper_connection_timeout_ms is None


@pytest.mark.parametrize(
    ("assignments", "text"),
    [
        (
            [CONNECT],
            "-o zookeeper.connect=zk1:2181,zk2/kafka: has no effect with"
            " plog.metadata.store=embedded; set plog.metadata.store=zookeeper to store the metadata"
            " in ZooKeeper, or remove zookeeper.connect",
        ),
        (
            [STORE],
            "zookeeper.connect is not set: plog.metadata.store=zookeeper requires the address of"
            " ZooKeeper: HOST:PORT[,HOST:PORT...][/CHROOT]",
        ),
        (
            [STORE, "zookeeper.connect=zk1:2181,zk2:port"],
            "-o zookeeper.connect=zk1:2181,zk2:port: 'zk2:port' is not HOST:PORT",
        ),
        (
            ["broker.id=-1"],
            "-o broker.id=-1: is only possible with plog.metadata.store=zookeeper; set an ID",
        ),
        (
            [STORE, CONNECT, "broker.id.generation.enable=false"],
            "node.id=1 (the default): must be set to an ID with broker.id.generation.enable=false",
        ),
        (
            [STORE, CONNECT, "broker.id=1001"],
            "-o broker.id=1001: is above reserved.broker.max.id (1000); raise"
            " reserved.broker.max.id, or set broker.id.generation.enable=false",
        ),
        (
            [STORE, CONNECT, "zookeeper.set.acl=true"],
            "-o zookeeper.set.acl=true: plog does not set ACLs on znodes; restrict access to"
            " ZooKeeper's port, and set it to false",
        ),
        (
            [STORE, CONNECT, "zookeeper.ssl.truststore.location=ca.pem"],
            "-o zookeeper.ssl.truststore.location=ca.pem: has no effect without"
            " zookeeper.ssl.client.enable=true",
        ),
        (
            [STORE, CONNECT, TLS, "zookeeper.ssl.crl.enable=true"],
            "-o zookeeper.ssl.crl.enable=true: plog does not check whether certificates are"
            " revoked; set it to false",
        ),
        (
            [STORE, CONNECT, TLS, "zookeeper.ssl.enabled.protocols="],
            "-o zookeeper.ssl.enabled.protocols=: is empty; set at least one TLS version",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_rejected(
    assignments: list[str], text: str
) -> None:
    assert problem(*assignments) == text


def test_java_keystore_is_rejected_with_the_commands_that_convert_it() -> None:
    text = problem(STORE, CONNECT, TLS, "zookeeper.ssl.keystore.type=JKS")
    assert "only PEM is supported; convert it once: keytool -importkeystore" in text
    assert "then set zookeeper.ssl.keystore.type=PEM," in text


@pytest.mark.parametrize(
    "connect", ["zk", "zk:2181", "zk:2181/", "127.0.0.1:1,[::1]:2181", "[::1]/a/b", "a,b:1/c"]
)
def test_valid_addresses_are_those_of_the_client(connect: str) -> None:
    assert connect_problem(connect) == ""
    KazooZooKeeper(connect, reactor=Unused(), session_timeout_ms=1000, pending=Later)


@pytest.mark.parametrize(
    "connect", ["", " ", ":2181", "zk:", "zk:0", "zk:65536", "zk,,zk", "zk:1/a//b", "zk:1/../b"]
)
def test_invalid_addresses_are_reported(connect: str) -> None:
    assert connect_problem(connect) != ""


def test_tls_settings_become_those_of_the_client() -> None:
    config = load(
        STORE,
        CONNECT,
        TLS,
        "zookeeper.ssl.keystore.location=/k.pem",
        "zookeeper.ssl.keystore.password=secret",
        "zookeeper.ssl.truststore.location=/t.pem",
        "zookeeper.ssl.enabled.protocols=TLSv1.3",
        "zookeeper.ssl.endpoint.identification.algorithm=",
    )
    security = security_of(tls_properties(config))
    assert isinstance(security, Security)
    assert security.trusted is not None and security.trusted.path == "/t.pem"
    assert security.key is not None and security.key.path == "/k.pem"
    assert (security.key_password, security.versions) == ("secret", ("TLSv1.3",))
    assert not security.checks_host_name
    assert "secret" not in repr(config)


class Unused:
    """A reactor for clients that do not connect."""

    def callFromThread(self, *_: object) -> None:
        raise AssertionError("the client is not started")
