"""Configs: any broker changes settings, and concurrent changes do not overwrite each other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from plog.errors import UnknownTopicOrPartition
from plogd.config import BrokerConfig
from plogd.controller.configs import Alter, Configs
from plogd.metadata.store import Key
from tests.helpers.controller_site import (
    ControllerSite,
    candidate,
    embedded,
    on_zookeeper,
    zookeeper_of,
)

TOPIC_CONFIG: Key = ("config", "topic", "t")
CLUSTER_CONFIG: Key = ("config", "broker", "")


@pytest.fixture(params=[embedded, on_zookeeper])
def site(request: pytest.FixtureRequest) -> ControllerSite:
    made: ControllerSite = request.param()
    return made


def configs(site: ControllerSite, known: tuple[str, ...] = ()) -> Configs:
    """Return the settings of a broker whose metadata cache has the topics `known`."""
    return Configs(site.site.store, site.controller, BrokerConfig, known.__contains__)


def put(name: str, value: str) -> Alter:
    return lambda old: {**old, name: value}


def add_one(old: Mapping[str, str]) -> dict[str, str]:
    return {**old, "log.retention.ms": str(int(old.get("log.retention.ms", "1")) + 1)}


def test_topic_settings_are_changed(site: ControllerSite) -> None:
    site.created("t")
    change = configs(site).alter_topic("t", put("retention.ms", "5"), validate_only=False)
    site.settle(change)
    assert site.site.store.get(TOPIC_CONFIG)[0] == {"retention.ms": "5"}
    with pytest.raises(UnknownTopicOrPartition):
        site.settle(configs(site).alter_topic("u", put("retention.ms", "5"), validate_only=False))


def test_hundreds_of_concurrent_changes_are_all_made(site: ControllerSite) -> None:
    broker = configs(site)
    work = [broker.alter_broker("", add_one, validate_only=False) for _ in range(300)]
    for one in work:
        site.settle(one)
    assert site.site.store.get(CLUSTER_CONFIG)[0] == {"log.retention.ms": "301"}


def test_two_brokers_change_the_same_settings() -> None:
    first = on_zookeeper()
    second = candidate(first)
    brokers = [configs(first), configs(second)]
    work = [
        broker.alter_broker("", add_one, validate_only=False)
        for _ in range(20)
        for broker in brokers
    ]
    for one in work:
        first.settle(one)
    zookeeper_of(first).run_for(100)
    for each in (first, second):
        assert each.site.store.get(CLUSTER_CONFIG)[0] == {"log.retention.ms": "41"}


def test_broker_that_is_not_the_controller_changes_topic_settings() -> None:
    first = on_zookeeper()
    first.created("t")
    second = candidate(first)
    other = configs(second, known=("t",))
    second.settle(other.alter_topic("t", put("retention.ms", "5"), validate_only=False))
    zookeeper_of(first).run_for(100)
    active = first.controller._active
    assert active is not None
    known = active._context.get("t")
    assert known is not None
    assert known.state.config == {"retention.ms": "5"}
    with pytest.raises(UnknownTopicOrPartition):
        second.settle(other.alter_topic("u", put("retention.ms", "5"), validate_only=False))
