"""Fixtures for tests with real clients: brokers, topic names, tools and certificates.

Most tests share one broker, and each uses its own topics. A test that stops or kills its broker, or
that needs special settings, uses `own_broker` or `plog_broker_factory`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.certificates import Authority
from tests.helpers.outside_broker import OutsideBroker, outside_broker
from tests.helpers.programs.kafka_tools import KafkaTools, RunTool
from tests.helpers.programs.kcat import Kcat
from tests.integration.client_servers import kafka_servers, plog_servers

# Imported here for all files: a file that imported these fixtures would start another Kafka.
__all__ = ["kafka_servers", "plog_servers"]

_SETTINGS = {
    # As in tests/bench/kafka-up: members that die in a test may have very short session timeouts.
    "group.min.session.timeout.ms": "500",
    # Tests write records with old timestamps. A slow run would outlast the time until the first
    # retention check, which deletes them.
    "log.retention.check.interval.ms": "86400000",
}


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> BrokerProcess | OutsideBroker:
    """The broker shared by the whole run: a new plog, or the one that the environment names."""
    return outside_broker() or request.getfixturevalue("plog_broker_factory")(_SETTINGS)


@pytest.fixture
def start_broker(plog_broker_factory: BrokerFactory) -> Iterator[BrokerFactory]:
    """A function that starts a broker with the given settings; the brokers stop with the test."""
    if outside_broker() is not None:
        pytest.skip("the test starts its own broker")
    started: list[BrokerProcess] = []

    def start(settings: dict[str, str] | None = None) -> BrokerProcess:
        started.append(plog_broker_factory(settings))
        return started[-1]

    yield start
    for each in started:
        if each.is_running:
            each.stop()


@pytest.fixture
def own_broker(start_broker: BrokerFactory) -> BrokerProcess:
    """A broker for one test, which may stop it, kill it or change its settings."""
    return start_broker()


@pytest.fixture
def new_topic(request: pytest.FixtureRequest) -> Callable[[], str]:
    """A function that returns unique topic names, which begin with the test's name."""
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-").removeprefix("test-")[:60]
    return lambda: f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(new_topic: Callable[[], str]) -> str:
    """The name of a topic that does not exist yet."""
    return new_topic()


@pytest.fixture
def kcat(broker: BrokerProcess) -> Kcat:
    """kcat, connected to the shared broker."""
    return Kcat(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def kafka_tools() -> Iterator[KafkaTools]:
    """Apache Kafka's Java tools, installed on first use."""
    tools = KafkaTools.installed()
    yield tools
    tools.close()


@pytest.fixture
def run(kafka_tools: KafkaTools, broker: BrokerProcess) -> RunTool:
    """A function that runs one of Kafka's Java tools against the shared broker."""
    return kafka_tools.against(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def authority() -> Authority:
    """The certificate authority of this run."""
    return Authority()


@pytest.fixture
def ca_file(authority: Authority, tmp_path: Path) -> Path:
    """The file with the CA certificate that clients trust."""
    return authority.truststore(tmp_path / "ca.pem")


@pytest.fixture
def tls_settings(authority: Authority, tmp_path: Path) -> dict[str, str]:
    """The settings of a broker with a TLS listener."""
    keystore = authority.server().keystore(tmp_path / "broker.pem")
    return {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(keystore)}


@pytest.fixture
def tls_broker(start_broker: BrokerFactory, tls_settings: dict[str, str]) -> BrokerProcess:
    """A broker that only speaks TLS."""
    return start_broker(tls_settings)


@pytest.fixture
def mutual_broker(
    start_broker: BrokerFactory, tls_settings: dict[str, str], ca_file: Path
) -> BrokerProcess:
    """A broker that requires client certificates."""
    more = {"ssl.client.auth": "required", "ssl.truststore.location": str(ca_file)}
    return start_broker({**tls_settings, **more})
