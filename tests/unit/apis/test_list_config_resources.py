"""ListConfigResources: requests and responses as frames."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.helpers.sim.several_brokers import add_brokers, live_broker
from tests.helpers.sim.sim_broker import SimBroker, create_topic


@pytest.fixture(scope="module")
def broker() -> SimBroker:
    started = SimBroker(node_id=7).start()
    for name in ("u", "t"):
        create_topic(started, name)
    return started


def ask(broker: SimBroker, *types: int, version: int = 1) -> Any:
    return broker.ask(ListConfigResourcesRequest(resource_types=list(types)), version)


def listed(broker: SimBroker, *types: int) -> list[tuple[int, str]]:
    answer = ask(broker, *types)
    assert answer.error_code == 0
    return [(one.resource_type, one.resource_name) for one in answer.config_resources]


def test_all_resources_are_listed_when_no_types_are_named(broker: SimBroker) -> None:
    assert listed(broker) == [(2, "t"), (2, "u"), (4, "7"), (8, "7")]


def test_every_live_broker_is_listed() -> None:
    broker = SimBroker(node_id=7).start()
    add_brokers(broker, live_broker(12))
    assert listed(broker) == [(4, "7"), (4, "12"), (8, "7"), (8, "12")]


def test_named_types_are_listed_once(broker: SimBroker) -> None:
    assert listed(broker, 4, 4) == [(4, "7")]
    assert listed(broker, 2, 8) == [(2, "t"), (2, "u"), (8, "7")]
    assert listed(broker, 16, 32) == []


def test_version_0_lists_only_client_metrics(broker: SimBroker) -> None:
    assert ask(broker, version=0).config_resources == []


def test_unknown_type_is_refused(broker: SimBroker) -> None:
    answer = ask(broker, 2, 3)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
