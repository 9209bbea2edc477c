"""ConfigAdmin: conversion of requests and responses, and operations on a broker."""

from __future__ import annotations

import pytest

from plog.client.admin.configs import (
    ConfigAdmin,
    altered_configs,
    described_configs,
    incremental_alter_configs_request,
)
from plog.client.admin.values import AlterConfig, ConfigResource, ConfigSynonym, ConfigType
from plog.client.network.socket_network import run_blocking
from plog.enums import AlterOperation, ConfigResourceType, ConfigSource
from plog.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from plog.wire.messages.alter_configs import AlterConfigsResourceResponse
from plog.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from plog.wire.messages.list_config_resources import ConfigResource as ListedResource
from plog.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.helpers.client.fake_cluster import ANY, FakeCluster
from tests.unit.client.admin.conftest import Site

TOPIC = ConfigResource.topic("a")


# -- pure -------------------------------------------------------------------------------------


def test_config_entry_has_all_fields_of_the_response() -> None:
    config = DescribeConfigsResourceResult(
        name="retention.ms",
        value="7",
        config_source=1,
        config_type=5,
        documentation="How long.",
        synonyms=[DescribeConfigsSynonym(name="log.retention.ms", value="9", source=4)],
    )
    result = DescribeConfigsResult(resource_type=2, resource_name="a", configs=[config])
    described = described_configs(DescribeConfigsResponse(results=[result]))[TOPIC]
    assert not isinstance(described, KafkaError)
    entry = described["retention.ms"]
    assert (entry.value, entry.source, entry.type) == (
        "7",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigType.LONG,
    )
    assert not entry.is_default
    assert entry.documentation == "How long."
    synonym = ConfigSynonym(
        name="log.retention.ms", value="9", source=ConfigSource.STATIC_BROKER_CONFIG
    )
    assert entry.synonyms == (synonym,)


def test_source_of_a_newer_kafka_is_unknown() -> None:
    config = DescribeConfigsResourceResult(name="x", config_source=99, config_type=99)
    result = DescribeConfigsResult(resource_type=2, resource_name="a", configs=[config])
    described = described_configs(DescribeConfigsResponse(results=[result]))[TOPIC]
    assert not isinstance(described, KafkaError)
    assert described["x"].source is ConfigSource.UNKNOWN
    assert described["x"].type is ConfigType.UNKNOWN


def test_error_without_message_names_the_resource() -> None:
    response = AlterConfigsResourceResponse(
        resource_type=4, resource_name="", error_code=ErrorCode.INVALID_REQUEST
    )
    error = altered_configs([response])[ConfigResource.broker()]
    assert isinstance(error, InvalidRequest)
    assert str(error).startswith("BROKER <default>: ")


def test_config_operations_have_protocol_numbers() -> None:
    changes = [
        AlterConfig("a", "1"),
        AlterConfig("b", operation=AlterOperation.DELETE),
        AlterConfig("c", "3", AlterOperation.APPEND),
        AlterConfig("d", "4", AlterOperation.SUBTRACT),
    ]
    [resource] = incremental_alter_configs_request({TOPIC: changes}, validate_only=True).resources
    assert [(x.name, x.config_operation, x.value) for x in resource.configs] == [
        ("a", 0, "1"),
        ("b", 1, None),
        ("c", 2, "3"),
        ("d", 3, "4"),
    ]


def test_broker_configs_are_requested_from_that_broker() -> None:
    cluster = FakeCluster()
    cluster.answer = lambda node_id, request: DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(resource_type=x.resource_type, resource_name=x.resource_name)
            for x in request.resources
        ]
    )
    resources = [
        ConfigResource.broker(2),
        TOPIC,
        ConfigResource.broker_logger(3),
        ConfigResource.broker(),
        ConfigResource.group("2"),
    ]
    described = run_blocking(ConfigAdmin(cluster.as_cluster()).describe_configs(resources))
    assert described == {key: {} for key in resources}
    asked = {node: [x.resource_name for x in request.resources] for node, request in cluster.asked}
    assert asked == {2: ["2"], ANY: ["a", "", "2"], 3: ["3"]}


# -- at a broker ------------------------------------------------------------------------------


def test_topic_configs_are_described(site: Site) -> None:
    site.run(site.admin.create_topic("a", configs={"retention.ms": "60000"}))
    entries = site.run(site.admin.describe_config(TOPIC))
    assert entries["retention.ms"].value == "60000"
    assert entries["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert entries["max.message.bytes"].is_default
    assert entries["retention.ms"].documentation is None
    assert entries["retention.ms"].synonyms == ()


def test_synonyms_and_documentation_are_returned_on_request(site: Site) -> None:
    site.run(site.admin.create_topic("a", configs={"retention.ms": "60000"}))
    described = site.run(
        site.admin.describe_configs(
            [TOPIC],
            names=["retention.ms"],
            include_synonyms=True,
            include_documentation=True,
        )
    )
    [entry] = described.get(TOPIC).values()
    assert entry.documentation
    assert next(synonym.name for synonym in entry.synonyms) == "retention.ms"
    assert entry.type is ConfigType.LONG


def test_configs_are_set_and_deleted_individually(site: Site) -> None:
    admin = site.admin
    site.run(admin.create_topic("a"))
    site.run(admin.alter_config(TOPIC, {"retention.ms": "60000", "max.message.bytes": "2000"}))
    site.run(admin.alter_config(TOPIC, {"retention.ms": None}))
    entries = site.run(admin.describe_config(TOPIC))
    assert entries["retention.ms"].is_default
    assert entries["max.message.bytes"].value == "2000"


def test_values_are_appended_to_and_subtracted_from_lists(site: Site) -> None:
    admin = site.admin
    site.run(admin.create_topic("a", configs={"cleanup.policy": "delete"}))
    for operation, expected in (
        (AlterOperation.APPEND, "delete,compact"),
        (AlterOperation.SUBTRACT, "delete"),
    ):
        change = AlterConfig("cleanup.policy", "compact", operation)
        site.run(admin.incremental_alter_configs({TOPIC: [change]})).raise_first()
        assert site.run(admin.describe_config(TOPIC))["cleanup.policy"].value == expected


def test_validate_only_changes_nothing(site: Site) -> None:
    admin = site.admin
    site.run(admin.create_topic("a"))
    site.run(admin.alter_config(TOPIC, {"retention.ms": "60000"}, validate_only=True))
    assert site.run(admin.describe_config(TOPIC))["retention.ms"].is_default
    with pytest.raises(InvalidConfig):
        site.run(admin.alter_config(TOPIC, {"retention.ms": "soon"}, validate_only=True))


def test_resources_have_their_own_outcomes(site: Site) -> None:
    admin = site.admin
    site.run(admin.create_topic("a"))
    other = ConfigResource.topic("b")
    change = [AlterConfig("retention.ms", "60000")]
    altered = site.run(admin.incremental_alter_configs({other: change, TOPIC: change}))
    assert isinstance(altered[other], UnknownTopicOrPartition)
    assert altered[TOPIC] is None
    described = site.run(admin.describe_configs([other, TOPIC]))
    assert isinstance(described[other], UnknownTopicOrPartition)
    assert described.get(TOPIC)["retention.ms"].value == "60000"


def test_alter_configs_replaces_all_topic_configs(site: Site) -> None:
    admin = site.admin
    site.run(admin.create_topic("a", configs={"retention.ms": "60000"}))
    site.run(admin.alter_configs({TOPIC: {"max.message.bytes": "2000"}})).raise_first()
    entries = site.run(admin.describe_config(TOPIC))
    assert entries["retention.ms"].is_default
    assert entries["max.message.bytes"].value == "2000"


def test_broker_configs_are_described_and_altered(site: Site) -> None:
    admin, node_id = site.admin, site.sim.broker.config.node_id
    own, every = ConfigResource.broker(node_id), ConfigResource.broker()
    assert site.run(admin.describe_config(own))["node.id"].is_read_only
    site.run(admin.alter_config(every, {"log.retention.ms": "60000"}))
    entry = site.run(admin.describe_config(own))["log.retention.ms"]
    assert (entry.value, entry.source) == ("60000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert list(site.run(admin.describe_config(every))) == ["log.retention.ms"]


def test_config_resources_are_listed(site: Site) -> None:
    site.run(site.admin.create_topic("a"))
    assert TOPIC in site.run(site.admin.list_config_resources())
    brokers = site.run(site.admin.list_config_resources([ConfigResourceType.BROKER]))
    assert brokers == [ConfigResource.broker(site.sim.broker.config.node_id)]


def test_client_metrics_are_listed_by_a_broker_without_types() -> None:
    """Such as a broker before Kafka 4.1."""

    def answer(node_id: int, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
        if request.resource_types:
            raise UnsupportedVersion("no types")
        return ListConfigResourcesResponse(config_resources=[ListedResource(resource_name="s")])

    cluster = FakeCluster()
    cluster.answer = answer
    admin = ConfigAdmin(cluster.as_cluster())
    metrics = ConfigResourceType.CLIENT_METRICS
    assert run_blocking(admin.list_config_resources([metrics])) == [ConfigResource(metrics, "s")]
    with pytest.raises(UnsupportedVersion):
        run_blocking(admin.list_config_resources([ConfigResourceType.GROUP]))
