"""A subscription determines the topics whose metadata the cluster refreshes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from plog.client.consumer.subscription import ConsumerSubscription
from plog.client.network.metadata import ClusterMetadata
from plog.client.settings import ConsumerSettings


class StubCluster:
    """A cluster that records the requested topics."""

    metadata = ClusterMetadata()

    def __init__(self) -> None:
        self.wants_all_topics = False
        self.asked_for_all = 0
        self.wanted: set[str] = set()

    def want_all_topics(self, wanted: bool) -> None:
        self.wants_all_topics = wanted
        self.asked_for_all += 1

    def want_topics(self, topics: Collection[str]) -> None:
        self.wanted |= set(topics)


async def call_user(function: Any, *arguments: Any) -> None:
    function(*arguments)


@pytest.fixture
def cluster() -> StubCluster:
    return StubCluster()


@pytest.fixture
def subscriber(cluster: StubCluster) -> ConsumerSubscription:
    settings = ConsumerSettings.from_options(bootstrap_servers="b:1")
    return ConsumerSubscription(cluster, settings, call_user)  # type: ignore[arg-type]


def test_subscription_requests_topics_by_name(
    subscriber: ConsumerSubscription, cluster: StubCluster
) -> None:
    assert not subscriber.is_subscribed
    assert subscriber.subscription == frozenset()
    subscriber.subscribe(["a", "b"])
    assert subscriber.is_subscribed
    assert subscriber.subscription == cluster.wanted == {"a", "b"}
    assert not cluster.asked_for_all


def test_pattern_requests_all_topics_until_unsubscribed(
    subscriber: ConsumerSubscription, cluster: StubCluster
) -> None:
    subscriber.subscribe(pattern="a.*")
    subscriber.subscribe(pattern="b.*")
    assert (cluster.wants_all_topics, cluster.asked_for_all) == (True, 1)
    subscriber.subscribe(["a"])
    assert not cluster.wants_all_topics
    subscriber.subscribe(pattern="a.*")
    subscriber._unsubscribe()
    assert not cluster.wants_all_topics
    assert not subscriber.is_subscribed
