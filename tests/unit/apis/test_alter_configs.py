"""AlterConfigs: requests and responses as frames."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from tests.helpers.sim.sim_broker import SimBroker, create_topic

TOPIC, BROKER, LOGGER = 2, 4, 8


def resource(
    name: str, *pairs: tuple[str, str | None], resource_type: int = TOPIC
) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in pairs],
    )


def ask(
    broker: SimBroker,
    *resources: AlterConfigsResource,
    version: int = 2,
    validate_only: bool = False,
) -> list[tuple[str, int]]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    responses = broker.ask(request, version).responses
    assert all(bool(one.error_message) == bool(one.error_code) for one in responses)
    assert [one.resource_type for one in responses] == [one.resource_type for one in resources]
    return [(one.resource_name, one.error_code) for one in responses]


def make(*topics: str) -> SimBroker:
    broker = SimBroker().start()
    for topic in topics or ("t",):
        create_topic(broker, topic, retention_ms="5", segment_ms="6")
    return broker


def config_of(broker: SimBroker, topic: str = "t") -> dict[str, str]:
    state = broker.broker.cache.topic(topic)
    assert state is not None
    return dict(state.config)


@pytest.mark.parametrize("version", range(3))
def test_new_settings_replace_all_others(version: int) -> None:
    broker = make()
    assert ask(broker, resource("t", ("segment.ms", "7")), version=version) == [("t", 0)]
    assert config_of(broker) == {"segment.ms": "7"}
    assert broker.log("t").config.segment_ms == 7
    assert broker.log("t").config.retention_ms == 7 * 24 * 3600 * 1000


def test_empty_settings_leave_topic_with_brokers_values() -> None:
    broker = make()
    assert ask(broker, resource("t")) == [("t", 0)]
    assert config_of(broker) == {}


def test_validate_only_changes_nothing() -> None:
    broker = make()
    assert ask(broker, resource("t", ("segment.ms", "7")), validate_only=True) == [("t", 0)]
    assert config_of(broker) == {"retention.ms": "5", "segment.ms": "6"}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (resource("t", ("segment.ms", None)), ErrorCode.INVALID_REQUEST),
        (resource("t", ("segment.ms", "7"), ("segment.ms", "8")), ErrorCode.INVALID_REQUEST),
        (resource("t", ("segment.ms", "x")), ErrorCode.INVALID_CONFIG),
        (resource("1", ("root", "DEBUG"), resource_type=LOGGER), ErrorCode.INVALID_REQUEST),
        (resource("g", ("a", "b"), resource_type=32), ErrorCode.INVALID_REQUEST),
        (resource("x", ("a", "b"), resource_type=77), ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_resource_does_not_affect_the_others(
    asked: AlterConfigsResource, code: int
) -> None:
    broker = make("t", "u")
    outcomes = ask(broker, asked, resource("u", ("segment.ms", "9")))
    assert outcomes == [(asked.resource_name, code), ("u", 0)]
    assert config_of(broker) == {"retention.ms": "5", "segment.ms": "6"}
    assert config_of(broker, "u") == {"segment.ms": "9"}


def test_resource_named_twice_is_not_changed() -> None:
    broker = make("t", "u")
    twice = [resource("t", ("segment.ms", "7")), resource("t")]
    code = ErrorCode.INVALID_REQUEST
    assert ask(broker, *twice, resource("u")) == [("t", code), ("t", code), ("u", 0)]
    assert config_of(broker) == {"retention.ms": "5", "segment.ms": "6"}


def test_settings_of_broker_are_replaced() -> None:
    broker = make()
    for pair in (("message.max.bytes", "2000"), ("max.connections", "9")):
        assert ask(broker, resource("1", pair, resource_type=BROKER)) == [("1", 0)]
    config = broker.broker.config
    assert (config.message_max_bytes, config.max_connections) == (1048588, 9)
