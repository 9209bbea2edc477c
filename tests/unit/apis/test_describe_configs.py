"""DescribeConfigs: requests and responses as frames."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from plogd.logging import LineObserver
from tests.helpers.sim.sim_broker import SimBroker, create_topic

TOPIC, BROKER, LOGGER = 2, 4, 8


@pytest.fixture(scope="module")
def broker() -> SimBroker:
    started = SimBroker(log_segment_bytes=1 << 24, num_partitions=7).start()
    create_topic(started, "t", retention_ms="5")
    return started


def ask(
    broker: SimBroker,
    resource_type: int = TOPIC,
    name: str = "t",
    keys: list[str] | None = None,
    version: int = 4,
    **fields: Any,
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys
    )
    [result] = broker.ask(DescribeConfigsRequest(resources=[resource], **fields), version).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


@pytest.mark.parametrize("version", range(1, 5))
def test_topic_settings_have_their_sources(broker: SimBroker, version: int) -> None:
    result = ask(broker, version=version)
    configs = {one.name: one for one in result.configs}
    sources = {
        name: (configs[name].value, configs[name].config_source)
        for name in ("retention.ms", "segment.bytes", "max.message.bytes")
    }
    assert sources == {
        "retention.ms": ("5", 1),
        "segment.bytes": (str(1 << 24), 4),
        "max.message.bytes": ("1048588", 5),
    }
    assert configs["retention.ms"].config_type == (5 if version >= 3 else 0)
    assert not configs["retention.ms"].read_only
    assert configs["retention.ms"].synonyms == []


def test_only_requested_settings_are_described(broker: SimBroker) -> None:
    result = ask(broker, keys=["retention.ms", "nonsense"])
    assert [one.name for one in result.configs] == ["retention.ms"]


def test_empty_keys_mean_all_settings(broker: SimBroker) -> None:
    assert len(ask(broker, keys=[]).configs) == len(ask(broker).configs) > 30


def test_synonyms_list_the_fallbacks_of_a_value(broker: SimBroker) -> None:
    result = ask(broker, keys=["retention.ms"], include_synonyms=True)
    [config] = result.configs
    sources = [(one.name, one.source) for one in config.synonyms]
    assert sources[0] == ("retention.ms", 1)
    assert sources[-1][1] == 5


@pytest.mark.parametrize(("version", "included"), [(2, False), (3, True)])
def test_documentation_is_included_on_request(
    broker: SimBroker, version: int, included: bool
) -> None:
    fields: dict[str, Any] = {"include_documentation": True} if version >= 3 else {}
    [config] = ask(broker, keys=["retention.ms"], version=version, **fields).configs
    assert bool(config.documentation) is included


def test_settings_of_this_broker_are_described(broker: SimBroker) -> None:
    configs = {one.name: one for one in ask(broker, BROKER, "1").configs}
    assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("7", 4)
    assert configs["node.id"].read_only


def test_cluster_wide_settings_are_empty_by_default(broker: SimBroker) -> None:
    result = ask(broker, BROKER, "")
    assert (result.error_code, result.configs) == (0, [])


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "__cluster_metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (LOGGER, "one", ErrorCode.INVALID_REQUEST),
        (16, "", ErrorCode.INVALID_REQUEST),
        (32, "", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_missing_resource_is_an_error(
    broker: SimBroker, resource_type: int, name: str, code: int
) -> None:
    result = ask(broker, resource_type, name)
    assert (result.error_code, bool(result.error_message), result.configs) == (code, True, [])


@pytest.mark.parametrize(("resource_type", "name"), [(16, "x"), (32, "g"), (LOGGER, "1")])
def test_resource_types_without_settings_have_empty_results(
    broker: SimBroker, resource_type: int, name: str
) -> None:
    """This broker has no log observer, so it has no logger to describe."""
    result = ask(broker, resource_type, name)
    assert (result.error_code, result.configs) == (0, [])


def test_logger_level_is_described() -> None:
    started = SimBroker().start()
    started.broker.logs = LineObserver(lambda _: None, "warn")
    [config] = ask(started, LOGGER, "1").configs
    assert (config.name, config.value, config.config_source) == ("root", "WARN", 6)


def test_each_resource_has_its_own_outcome(broker: SimBroker) -> None:
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
        for name in ("nobody", "t")
    ]
    answer = broker.ask(DescribeConfigsRequest(resources=resources), 4)
    assert [one.error_code for one in answer.results] == [3, 0]


def test_resource_named_repeatedly_is_described_once(broker: SimBroker) -> None:
    def named(resource_type: int, name: str) -> DescribeConfigsResource:
        return DescribeConfigsResource(resource_type=resource_type, resource_name=name)

    resources = [named(TOPIC, "t"), named(BROKER, "1"), *[named(TOPIC, "t")] * 20_000]
    results = broker.ask(DescribeConfigsRequest(resources=resources), 4).results
    assert [one.error_code for one in results[:2]] == [0, 0]
    assert {one.error_code for one in results[2:]} == {ErrorCode.INVALID_REQUEST}
    assert len(results) == len(resources)
