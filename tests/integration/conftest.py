"""The broker and the topics that the client tests use.

Most tests share one broker and keep apart by topic; a test that stops or kills its broker, or needs
settings of its own, takes `own_broker` or `plog_broker_factory`.
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
from tests.helpers.kafka_tools import KafkaTools, RunTool
from tests.helpers.kcat import Kcat
from tests.helpers.outside_broker import OutsideBroker, outside_broker
from tests.integration.client_servers import kafka_servers, plog_servers

# Fixtures, one for all files: a file that imported them itself would start a Kafka of its own.
__all__ = ["kafka_servers", "plog_servers"]

# As in tests/bench/kafka-up: members that die in a test are not waited for as long as in life.
_SETTINGS = {"group.min.session.timeout.ms": "500"}


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> BrokerProcess | OutsideBroker:
    """The broker of the whole run: ours, or the one the environment names."""
    return outside_broker() or request.getfixturevalue("plog_broker_factory")(_SETTINGS)


@pytest.fixture
def start_broker(plog_broker_factory: BrokerFactory) -> Iterator[BrokerFactory]:
    """Start brokers with settings of this test's own; they stop with it."""
    if outside_broker() is not None:
        pytest.skip("starts a broker of its own")
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
    """A broker for one test, which may do with it what it likes."""
    return start_broker()


@pytest.fixture
def new_topic(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names for topics that nobody else uses; they begin with the test's name."""
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-").removeprefix("test-")[:60]
    return lambda: f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(new_topic: Callable[[], str]) -> str:
    """The name of a topic that does not exist yet."""
    return new_topic()


@pytest.fixture
def kcat(broker: BrokerProcess) -> Kcat:
    """kcat against the shared broker."""
    return Kcat(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def kafka_tools() -> Iterator[KafkaTools]:
    """Apache Kafka's Java tools, installed on first use."""
    tools = KafkaTools.installed()
    yield tools
    tools.close()


@pytest.fixture
def run(kafka_tools: KafkaTools, broker: BrokerProcess) -> RunTool:
    """Run one of Kafka's Java tools against the shared broker."""
    return kafka_tools.against(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def authority() -> Authority:
    """The CA of this run."""
    return Authority()


@pytest.fixture
def ca_file(authority: Authority, tmp_path: Path) -> Path:
    """The certificate that clients trust."""
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
    """A broker whose clients have to show a certificate."""
    more = {"ssl.client.auth": "required", "ssl.truststore.location": str(ca_file)}
    return start_broker({**tls_settings, **more})
