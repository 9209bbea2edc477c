"""The lookups with which Spark's driver plans queries, without Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plog.client.faces.blocking import Admin
from plog.errors import UnknownTopicOrPartition
from plog.spark.options.topic_choice import TopicChoice
from plog.spark.reader.cluster_lookup import ClusterLookup
from plog.spark.reader.data_loss import LogBounds
from plog.types import TopicPartition
from plogd.testing.broker_process import BrokerProcess


def test_topic_that_was_deleted_does_not_delay_the_lookup(
    broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic, other = new_topic(), new_topic()
    servers = broker.bootstrap_servers
    # A lookup that waited for the topic would last until the test's own timeout.
    settings = {"bootstrap.servers": servers, "default.api.timeout.ms": "3600000"}
    with Admin(bootstrap_servers=servers) as admin, ClusterLookup(settings) as lookup:
        admin.create_topics({topic: 1, other: 1}).raise_first()
        found = list(lookup.partitions(TopicChoice(topics=(topic, other))))
        assert lookup.bounds(found) == dict.fromkeys(found, LogBounds(0, 0))
        admin.delete_topics([topic]).raise_first()
        with pytest.raises(UnknownTopicOrPartition, match=topic):
            lookup.bounds(found)
        left = TopicPartition(other, 0)
        assert lookup.bounds([left]) == {left: LogBounds(0, 0)}
