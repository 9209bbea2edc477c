"""pytest fixtures for a real broker; installed with plog, pytest finds them by itself.

::

    def test_page_views_are_counted(plog_broker):
        producer = Producer({"bootstrap.servers": plog_broker.bootstrap_servers})

A test that needs settings of its own, or several brokers, asks for `plog_broker_factory`. Both end
what they started, and a broker that does not stop cleanly is an error of the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from plogd.testing.broker_process import BrokerProcess


class BrokerFactory(Protocol):
    """Start one more broker; `settings` are Kafka's names, as in server.properties."""

    def __call__(self, settings: dict[str, str] | None = None) -> BrokerProcess: ...


@pytest.fixture(scope="session")
def plog_broker_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerFactory]:
    """Brokers started on demand that live until the session ends, or until they are stopped."""
    brokers: list[BrokerProcess] = []

    def start(settings: dict[str, str] | None = None) -> BrokerProcess:
        broker = BrokerProcess(tmp_path_factory.mktemp("plog-broker"), settings)
        broker.start()
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        if broker.is_running:
            broker.stop()


@pytest.fixture
def plog_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with an empty data directory for one test."""
    with BrokerProcess(tmp_path / "plog-broker") as broker:
        yield broker
