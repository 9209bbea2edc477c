"""The settings of consumers whose group ZooKeeper coordinates."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.client.settings import ConsumerSettings
from plog.settings import ConfigError

MODE = {"coordination": "zookeeper", "zookeeper.connect": "zk:2181", "group.id": "g"}


def load(options: dict[str, object]) -> ConsumerSettings:
    return ConsumerSettings.from_options({"bootstrap.servers": "b:1", **options})


def test_defaults_are_those_of_kafka() -> None:
    settings = load(MODE)
    assert settings.zookeeper_session_timeout_ms == 6_000
    assert settings.zookeeper_connection_limit_ms == 6_000
    assert settings.enable_auto_commit
    assert settings.warnings == ()
    assert load({}).coordination == "group"


def test_connection_timeout_has_its_own_value() -> None:
    settings = load({**MODE, "zookeeper.connection.timeout.ms": "1000"})
    assert settings.zookeeper_connection_limit_ms == 1_000


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"zookeeper.connect": None},
            "zookeeper.connect is not set: coordination=zookeeper requires the address of"
            " ZooKeeper: HOST:PORT[,HOST:PORT...][/CHROOT]",
        ),
        ({"zookeeper.connect": "zk:x"}, "zookeeper.connect=zk:x: 'zk:x' is not HOST:PORT"),
        ({"group.id": None}, "coordination=zookeeper: zookeeper requires a group.id"),
        (
            {"group.id": "a/b"},
            "group.id=a/b: allowed with coordination=zookeeper: letters, digits, dots,"
            " underscores and hyphens",
        ),
        (
            {"group.id": ".."},
            "group.id=..: allowed with coordination=zookeeper: letters, digits, dots,"
            " underscores and hyphens",
        ),
        (
            {"group.instance.id": "i"},
            "group.instance.id=i: is not supported with coordination=zookeeper: there are no"
            " static members; remove it",
        ),
        (
            {"group.protocol": "classic"},
            "group.protocol=classic: is not supported with coordination=zookeeper: brokers take"
            " no part in the group; remove it",
        ),
        (
            {"partition.assignment.strategy": "sticky"},
            "partition.assignment.strategy=sticky: only range is supported with"
            " coordination=zookeeper",
        ),
        (
            {"zookeeper.ssl.truststore.location": "ca.pem"},
            "zookeeper.ssl.truststore.location=ca.pem: has no effect without"
            " zookeeper.ssl.client.enable=true",
        ),
        (
            {"coordination": "group"},
            "zookeeper.connect=zk:2181: has no effect without coordination=zookeeper",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_rejected(
    options: dict[str, object], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load({**MODE, **options})
    [problem] = caught.value.problems
    assert problem.replace("(the default)", "").strip() == text


def test_range_may_be_set_explicitly() -> None:
    assert load({**MODE, "partition.assignment.strategy": "range"}).warnings == ()


def test_timeouts_of_brokers_cause_a_warning() -> None:
    settings = load({**MODE, "session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000})
    assert settings.warnings == (
        "session.timeout.ms has no effect with coordination=zookeeper; set"
        " zookeeper.session.timeout.ms",
        "heartbeat.interval.ms has no effect with coordination=zookeeper; ZooKeeper's client"
        " chooses the interval",
    )


def test_misspelled_tls_setting_in_a_file_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("zookeeper.ssl.trustore.location=ca.pem\n")
    with pytest.raises(ConfigError, match=r"did you mean zookeeper\.ssl\.truststore\.location"):
        ConsumerSettings.from_file(file, {"bootstrap.servers": "b:1", **MODE})
