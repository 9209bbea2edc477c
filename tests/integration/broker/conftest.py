"""Fixtures for brokers that adopt the directory of a Kafka broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess

_KAFKAS = {"node.id": "7", "offsets.topic.num.partitions": "4"}
"""The settings of Kafka in the tests of adoption."""


@pytest.fixture
def start_on() -> Iterator[Callable[..., BrokerProcess]]:
    """A function that starts a broker on an existing directory; it stops with the test."""
    started: list[BrokerProcess] = []

    def start(directory: Path, **settings: str) -> BrokerProcess:
        broker = BrokerProcess(directory, {**_KAFKAS, **settings})
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        if broker.is_running:
            broker.stop()
