"""IncrementalAlterConfigs: requests and responses as frames, and the effects of the changes."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from plogd.logging import LineObserver
from tests.helpers.sim.sim_broker import SimBroker, create_topic

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Pair = tuple[str, int, str | None]


def resource(
    name: str, *changes: Pair, resource_type: int = TOPIC
) -> IncrementalAlterConfigsResource:
    return IncrementalAlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def of_broker(name: str, *changes: Pair) -> IncrementalAlterConfigsResource:
    return resource(name, *changes, resource_type=BROKER)


def request_of(
    *resources: IncrementalAlterConfigsResource, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)


def ask(
    broker: SimBroker, *resources: IncrementalAlterConfigsResource, version: int = 1, **fields: Any
) -> list[Any]:
    responses = broker.ask(request_of(*resources, **fields), version).responses
    assert [(one.resource_type, one.resource_name) for one in responses] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    return list(responses)


def done(broker: SimBroker, *resources: IncrementalAlterConfigsResource, version: int = 1) -> None:
    for response in ask(broker, *resources, version=version):
        assert (response.error_code, response.error_message) == (0, None)


def make(**settings: Any) -> SimBroker:
    broker = SimBroker(**settings).start()
    create_topic(broker, "t")
    return broker


def described(broker: SimBroker, resource_type: int, name: str, key: str) -> list[tuple[Any, int]]:
    """Return the value and source of a setting, followed by those of its synonyms."""
    asked = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=[key]
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    [result] = broker.ask(request, 4).results
    return [
        pair
        for config in result.configs
        for pair in [
            (config.value, config.config_source),
            *((one.value, one.source) for one in config.synonyms),
        ]
    ]


@pytest.mark.parametrize("version", range(2))
def test_topic_setting_applies_immediately(version: int) -> None:
    broker = make()
    assert broker.produce("t", b"x" * 500).error_code == 0
    done(broker, resource("t", ("max.message.bytes", SET, "200")), version=version)
    assert broker.produce("t", b"x" * 500).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert described(broker, TOPIC, "t", "max.message.bytes") == [
        ("200", 1),
        ("200", 1),
        ("1048588", 5),
    ]
    done(broker, resource("t", ("max.message.bytes", DELETE, None)), version=version)
    assert broker.produce("t", b"x" * 500).error_code == 0


def test_topic_setting_applies_to_every_log() -> None:
    broker = SimBroker().start()
    create_topic(broker, "many", 3)
    done(
        broker,
        resource(
            "many",
            ("retention.ms", SET, "1000"),
            ("segment.bytes", SET, "1048576"),
            ("compression.type", SET, "lz4"),
            ("message.timestamp.type", SET, "LogAppendTime"),
            ("min.insync.replicas", SET, "2"),
            ("cleanup.policy", APPEND, "compact"),
        ),
    )
    for partition in range(3):
        config = broker.log("many", partition).config
        assert (config.retention_ms, config.segment_bytes) == (1000, 1 << 20)
        assert (config.compression_type, config.uses_log_append_time) == ("lz4", True)
        assert (config.min_insync_replicas, config.cleanup_policy) == (2, ("delete", "compact"))


def test_settings_survive_a_restart() -> None:
    broker = make()
    done(
        broker,
        resource("t", ("retention.ms", SET, "1000")),
        of_broker("1", ("max.connections", SET, "5")),
        of_broker("", ("max.connections", SET, "6"), ("log.segment.bytes", SET, "2000000")),
    )
    after = broker.restart()
    assert after.log("t").config.retention_ms == 1000
    assert after.log("t").config.segment_bytes == 2_000_000
    assert (after.broker.config.max_connections, after.config.max_connections) == (5, 2**31 - 1)


def test_sources_of_broker_settings_are_in_order() -> None:
    broker = make(log_retention_ms=4000)
    done(broker, of_broker("", ("log.retention.ms", SET, "3000")))
    done(broker, of_broker("1", ("log.retention.ms", SET, "2000")))
    expected = [("2000", 2), ("2000", 2), ("3000", 3), ("4000", 4)]
    assert described(broker, BROKER, "1", "log.retention.ms") == expected
    assert described(broker, BROKER, "", "log.retention.ms") == [("3000", 3), ("3000", 3)]
    of_topic = described(broker, TOPIC, "t", "retention.ms")
    assert of_topic == [*expected, ("168", 5)]
    assert broker.log("t").config.retention_ms == 2000
    done(broker, of_broker("1", ("log.retention.ms", DELETE, None)))
    assert broker.log("t").config.retention_ms == 3000
    done(broker, of_broker("", ("log.retention.ms", DELETE, None)))
    assert broker.log("t").config.retention_ms == 4000


def test_reloaded_file_does_not_override_settings_of_clients() -> None:
    broker = make()
    limits: list[int] = []
    broker.broker.on_config = lambda config: limits.append(config.max_connections)
    done(broker, of_broker("1", ("max.connections", SET, "5")))
    reloaded = SimBroker(max_connections=9, message_max_bytes=77).config
    broker.broker.update_config(reloaded)
    config = broker.broker.config
    assert (config.max_connections, config.message_max_bytes) == (5, 77)
    done(broker, of_broker("1", ("max.connections", DELETE, None)))
    assert broker.broker.config.max_connections == 9
    assert limits == [5, 5, 9]


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (resource("t", ("retention.ms", SET, "x")), 40, "retention.ms=x: not a whole number"),
        (resource("t", ("segment.bytes", SET, "5")), 40, "allowed: at least 1048576"),
        (resource("t", ("retention.mss", SET, "5")), 40, "did you mean retention.ms?"),
        (resource("t", ("retention.ms", APPEND, "5")), 40, "its type is not LIST"),
        (resource("t", ("retention.ms", SET, None)), 42, "Null value"),
        (resource("t", ("retention.ms", 9, "5")), 42, "unknown operation 9"),
        (resource("t", ("flush.ms", SET, "5"), ("flush.ms", DELETE, None)), 42, "duplicate"),
        (resource("nobody", ("retention.ms", SET, "5")), 3, "'nobody' does not exist"),
        (resource("", ("retention.ms", SET, "5")), 42, "Default topic"),
        (resource("a/b", ("retention.ms", SET, "5")), 17, "name is invalid"),
        (of_broker("2", ("max.connections", SET, "5")), 42, "expected 1, but received 2"),
        (of_broker("one", ("max.connections", SET, "5")), 42, "must be an integer"),
        (of_broker("1", ("num.partitions", SET, "5")), 42, "restart the broker"),
        (of_broker("", ("node.id", SET, "5")), 42, "restart the broker"),
        (of_broker("1", ("max.connections", SET, "x")), 42, "max.connections=x"),
        (of_broker("1", ("max.connection", SET, "5")), 40, "did you mean max.connections?"),
        (resource("1", ("root", SET, "DEBUG"), resource_type=LOGGER), 40, "does not exist"),
        (resource("2", ("root", SET, "DEBUG"), resource_type=LOGGER), 42, "expected 1"),
        (resource("m", ("metrics", SET, "*"), resource_type=METRICS), 42, "does not collect"),
        (resource("g", ("x", SET, "5"), resource_type=GROUP), 42, "protocols"),
        (resource("x", ("x", SET, "5"), resource_type=3), 42, "Unknown resource type 3"),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_invalid_resource_is_refused_and_the_others_change(
    asked: IncrementalAlterConfigsResource, code: int, text: str, validate_only: bool
) -> None:
    broker = make()
    create_topic(broker, "u")
    good = resource("u", ("retention.ms", SET, "5"))
    refused, other = ask(broker, asked, good, validate_only=validate_only)
    assert (refused.error_code, other.error_code) == (code, 0)
    assert text in refused.error_message
    assert broker.log("t").config.retention_ms > 5
    assert (broker.log("u").config.retention_ms == 5) is not validate_only


def test_changes_of_a_resource_are_all_applied_or_none() -> None:
    broker = make()
    [refused] = ask(broker, resource("t", ("retention.ms", SET, "5"), ("flush.ms", SET, "never")))
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert described(broker, TOPIC, "t", "retention.ms")[0][1] == 5


def test_concurrent_changes_are_all_applied() -> None:
    broker = make()
    names = [f"{1000 + i}:1" for i in range(20)]
    key = "leader.replication.throttled.replicas"
    begun = [broker.begin(request_of(resource("t", (key, APPEND, name))), 1) for name in names]
    begun += [
        broker.begin(request_of(of_broker("", (name, SET, "5000"))), 1)
        for name in ("max.connections", "log.retention.ms", "log.roll.ms")
    ]
    broker.settle()
    assert {one.error_code for asked in begun for one in asked.response().responses} == {0}
    assert described(broker, TOPIC, "t", key)[0][0] == ",".join(names)
    config = broker.broker.config
    assert (config.max_connections, config.log_retention_ms, config.log_roll_ms) == (5000,) * 3


def test_change_is_answered_and_applied_only_when_durable() -> None:
    broker = make()
    asked = broker.begin(request_of(resource("t", ("retention.ms", SET, "5"))), 1)
    assert not asked.is_done
    assert broker.log("t").config.retention_ms > 5
    broker.settle()
    assert asked.is_done
    assert broker.log("t").config.retention_ms == 5


def test_change_concurrent_with_deletion_leaves_nothing_behind() -> None:
    broker = make()
    deleted = broker.begin(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    asked = broker.begin(request_of(resource("t", ("retention.ms", SET, "5"))), 1)
    broker.settle()
    assert deleted.response().responses[0].error_code == 0
    assert asked.response().responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(broker, "t")
    assert broker.log("t").config.retention_ms > 5


def test_topic_being_deleted_keeps_its_settings() -> None:
    broker = make()
    done(broker, resource("t", ("file.delete.delay.ms", SET, "90000")))
    broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    broker.ports.advance(70_000)
    assert [name for name in broker.files.listdir("/data") if name.startswith("t-")] != []


def test_change_is_logged() -> None:
    broker = make()
    done(broker, resource("t", ("retention.ms", SET, "5")))
    done(broker, resource("t", ("retention.ms", DELETE, None)))
    done(
        broker,
        of_broker("", ("max.connections", SET, "5")),
        of_broker("1", ("max.connections", SET, "6")),
    )
    assert broker.reports[-4:] == [
        "settings of topic t changed: retention.ms=5",
        "settings of topic t changed: retention.ms removed",
        "settings of all brokers changed: max.connections=5",
        "settings of broker 1 changed: max.connections=6",
    ]


def test_logger_level_is_changed() -> None:
    broker = make()
    broker.broker.logs = LineObserver(lambda _: None, "info")
    done(broker, resource("1", ("root", SET, "ERROR"), resource_type=LOGGER))
    assert broker.broker.logs.level == "error"


@pytest.mark.parametrize("version", range(2))
def test_long_name_does_not_hide_outcomes_of_others(version: int) -> None:
    broker = make()
    bad = resource("x" * 32_767, ("retention.ms", SET, "1"))
    worse = of_broker("1", ("y" * 32_767, SET, "1"))
    good = resource("t", ("retention.ms", SET, "1"))
    codes = [one.error_code for one in ask(broker, bad, worse, good, version=version)]
    assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_CONFIG, 0]
    assert described(broker, TOPIC, "t", "retention.ms")[0] == ("1", 1)


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
def test_limit_that_would_refuse_all_clients_is_refused(name: str) -> None:
    broker = make()
    [answer] = ask(broker, of_broker("", (name, SET, "0")))
    assert answer.error_code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    assert "at least 1" in answer.error_message
    assert getattr(broker.broker.config, name.replace(".", "_")) == 2**31 - 1
