"""Changes of settings compared with Apache Kafka: error codes, and the values after the change.

Intended differences are not compared: client metrics and groups, which have no settings in plog,
and broker settings that plog does not use, which Kafka stores.
"""

from __future__ import annotations

import time

import pytest

from plog.wire.api_keys import ApiKey
from plog.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from plog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from plog.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.helpers.side_by_side import Pair
from tests.integration.kafka_comparison.test_records import create
from tests.integration.kafka_comparison.versions import lowest_and_highest

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]
_KAFKA_APPLIES_WITHIN_S = 60
UNORDERED = ("responses", "config_resources")


def increment(kind: int, name: str, *changes: Change) -> IncrementalAlterConfigsResource:
    return IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def replacement(kind: int, name: str, *pairs: tuple[str, str | None]) -> AlterConfigsResource:
    configs = [AlterableConfig(name=key, value=value) for key, value in pairs]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def described(pair: Pair, kind: int, name: str, *keys: str) -> None:
    """Wait until both describe the same values and synonyms; Kafka's broker may be late."""
    asked = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys)
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    deadline = time.monotonic() + _KAFKA_APPLIES_WITHIN_S
    while True:
        try:
            pair.same(request, 4)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        else:
            return


@lowest_and_highest(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def test_topic_settings_are_changed(pair: Pair, version: int) -> None:
    name = f"altered-{version}"
    create(pair, name)
    for changes in (
        [("retention.ms", SET, "1000"), ("max.message.bytes", SET, " 2000 ")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "")],
        [("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None)],
        [("cleanup.policy", SUBTRACT, "compact")],
        [("no.such.setting", DELETE, None)],
        [],
    ):
        request = IncrementalAlterConfigsRequest(resources=[increment(TOPIC, name, *changes)])
        pair.same(request, version)
        described(pair, TOPIC, name, "cleanup.policy", "max.message.bytes")


WRONG = [
    (TOPIC, "{}", ("retention.ms", SET, "soon")),
    (TOPIC, "{}", ("retention.ms", SET, "-2")),
    (TOPIC, "{}", ("compression.type", SET, "foo")),
    (TOPIC, "{}", ("no.such.setting", SET, "1")),
    (TOPIC, "{}", ("no.such.setting", APPEND, "1")),
    (TOPIC, "{}", ("retention.ms", APPEND, "1")),
    (TOPIC, "{}", ("retention.ms", SET, None)),
    (TOPIC, "{}", ("remote.storage.enable", SET, "true")),
    (TOPIC, "{}-not", ("retention.ms", SET, "1")),
    (TOPIC, "{}-not", ("retention.ms", SET, "soon")),
    (TOPIC, "", ("retention.ms", SET, "1")),
    (TOPIC, "a b", ("retention.ms", SET, "1")),
    (BROKER, "99", ("log.retention.ms", SET, "1")),
    (BROKER, "one", ("log.retention.ms", SET, "1")),
    (BROKER, "1", ("num.partitions", SET, "1")),
    (BROKER, "1", ("log.retention.hours", SET, "1")),
    (BROKER, "", ("log.dirs", SET, "1")),
    (BROKER, "1", ("max.connections", SET, "-1")),
    (BROKER, "1", ("log.retention.ms", SET, "soon")),
    (BROKER, "1", ("log.retention.ms", APPEND, "1")),
    (BROKER, "1", ("foo.bar", APPEND, "1")),
    (BROKER, "1", ("num.partitions", DELETE, None)),
    (LOGGER, "1", ("no.such.logger", SET, "INFO")),
    (LOGGER, "1", ("root", SET, "info")),
    (LOGGER, "1", ("root", DELETE, None)),
    (LOGGER, "1", ("root", APPEND, "INFO")),
    (LOGGER, "", ("root", SET, "INFO")),
    (LOGGER, "99", ("root", SET, "INFO")),
    (3, "x", ("a", SET, "1")),
    (77, "x", ("a", SET, "1")),
]


@lowest_and_highest(ApiKey.INCREMENTAL_ALTER_CONFIGS)
@pytest.mark.parametrize("validate_only", [False, True])
def test_invalid_changes_are_refused_the_same_way(
    pair: Pair, version: int, validate_only: bool
) -> None:
    name = f"refused-{version}-{validate_only}"
    create(pair, name)
    good = increment(TOPIC, name, ("segment.ms", SET, "60000"))
    for kind, resource_name, change in WRONG:
        wrong = increment(kind, resource_name.format(name), change)
        resources = [wrong] if wrong.resource_name == name else [wrong, good]
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
        pair.same(request, version, unordered=UNORDERED)
    twice = [increment(TOPIC, name, ("flush.ms", SET, "1"), ("flush.ms", DELETE, None))]
    for resources in (twice, [good, good], [good, good, good]):
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
        pair.same(request, version)


@lowest_and_highest(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def test_broker_settings_and_their_sources_are_described(pair: Pair, version: int) -> None:
    key = "max.connections"

    def alter(name: str, operation: int, value: str | None) -> None:
        changed = increment(BROKER, name, (key, operation, value))
        pair.same(IncrementalAlterConfigsRequest(resources=[changed]), version)

    alter("1", SET, "5000")
    alter("", SET, "6000")
    described(pair, BROKER, "1", key)
    described(pair, BROKER, "", key)
    alter("1", DELETE, None)
    described(pair, BROKER, "1", key)
    alter("", DELETE, None)
    described(pair, BROKER, "1", key)
    described(pair, BROKER, "", key)


@lowest_and_highest(ApiKey.ALTER_CONFIGS)
def test_settings_are_replaced_or_refused(pair: Pair, version: int) -> None:
    name = f"replaced-{version}"
    create(pair, name)
    for kind, resource_name, pairs in (
        (TOPIC, name, [("max.message.bytes", "2000"), ("cleanup.policy", "compact")]),
        (TOPIC, name, [("cleanup.policy", "compact,delete")]),
        (TOPIC, name, [("cleanup.policy", None)]),
        (TOPIC, name, [("flush.ms", "1"), ("flush.ms", "2")]),
        (TOPIC, name, [("no.such.setting", "1")]),
        (TOPIC, f"{name}-not", [("flush.ms", "1")]),
        (BROKER, "1", [("num.partitions", "1")]),
        (LOGGER, "1", [("root", "INFO")]),
        (77, "x", [("a", "1")]),
        (TOPIC, name, []),
    ):
        changed = replacement(kind, resource_name, *pairs)
        pair.same(AlterConfigsRequest(resources=[changed]), version)
        described(pair, TOPIC, name, "cleanup.policy", "max.message.bytes")


@lowest_and_highest(ApiKey.LIST_CONFIG_RESOURCES)
def test_resources_are_listed(pair: Pair, version: int) -> None:
    create(pair, f"listed-{version}")
    for types in [[], [TOPIC], [BROKER, LOGGER], [3], [99]] if version else [[]]:
        request = ListConfigResourcesRequest(resource_types=types)
        pair.same(request, version, unordered=UNORDERED)
