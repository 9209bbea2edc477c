"""plog and a real Apache Kafka, with settings that make them comparable."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plogd.testing.plugin import BrokerFactory
from tests.helpers.outside_broker import outside_broker
from tests.helpers.programs.apache_kafka import ApacheKafka
from tests.helpers.side_by_side import Pair, Side

_KAFKAS_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    # Like plog: without consumer and share groups.
    "group.coordinator.rebalance.protocols": "classic",
    "log.cleaner.enable": "false",
    "offsets.topic.num.partitions": "3",
}
_PLOG_SETTINGS = {"offsets.topic.num.partitions": "3"}


@pytest.fixture(scope="package")
def pair(
    plog_broker_factory: BrokerFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Both brokers, without data."""
    if outside_broker() is not None:
        pytest.skip("the test starts its own brokers")
    kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), _KAFKAS_SETTINGS)
    broker = plog_broker_factory({})
    yield Pair(Side("plog", broker.bootstrap_servers), Side("kafka", kafka.bootstrap_servers))
    broker.stop()
    kafka.stop()
