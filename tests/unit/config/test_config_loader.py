"""Loading a BrokerConfig from files and the command line: precedence, errors and warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from plogd.config import BrokerConfig, ConfigError, LoadedConfig, Origin, load_config, reloadable


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problems(*overrides: str, files: tuple[Path, ...] = ()) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_config(files, overrides)
    return caught.value.problems


def test_defaults_apply_without_files_and_overrides() -> None:
    loaded = load_config([])
    assert loaded == LoadedConfig(config=BrokerConfig(), warnings=(), sources={})
    assert loaded.config.explicit == frozenset()


def test_last_value_wins_in_the_order_file_conf_d_command_line(tmp_path: Path) -> None:
    file = write(tmp_path / "server.properties", "node.id=2\nnum.partitions=2\nlog.dirs=/2\n")
    write(tmp_path / "conf.d" / "20-b.properties", "num.partitions=4\nlog.dirs=/4\n")
    write(tmp_path / "conf.d" / "10-a.properties", "num.partitions=3\n")
    write(tmp_path / "conf.d" / "30.properties.dpkg-old", "num.partitions=9\n")
    write(tmp_path / "conf.d" / ".hidden.properties", "num.partitions=9\n")
    loaded = load_config([file], ["log.dirs=/5"])
    config = loaded.config
    assert (config.node_id, config.num_partitions, config.log_dirs) == (2, 4, ("/5",))
    assert loaded.sources == {
        "node.id": Origin(path=str(file), line=1),
        "num.partitions": Origin(path=str(tmp_path / "conf.d" / "20-b.properties"), line=1),
        "log.dirs": Origin(),
    }
    assert config.explicit == {"node.id", "num.partitions", "log.dirs"}


def test_conf_d_is_read_once_after_the_last_file_of_its_directory(tmp_path: Path) -> None:
    first = write(tmp_path / "a.properties", "num.partitions=2")
    second = write(tmp_path / "b.properties", "num.partitions=3")
    write(tmp_path / "conf.d" / "c.properties", "num.partitions=4")
    assert load_config([first, second]).config.num_partitions == 4


def test_invalid_values_are_reported_with_their_line_and_the_allowed_values(tmp_path: Path) -> None:
    file = write(tmp_path / "x.properties", "\nlog.segment.bytes=1\nplog.flush.syncfs=maybe\n")
    assert problems("node.id=x", files=(file,)) == (
        f"{file}:2: log.segment.bytes=1: too small; allowed: at least 1048576 (bytes)",
        f"{file}:3: plog.flush.syncfs=maybe: not one of the allowed values; allowed: auto, never",
        "-o node.id=x: not a whole number; allowed: -1, or at least 0",
    )


def test_invalid_value_is_ignored_when_a_later_one_overrides_it() -> None:
    assert load_config([], ["node.id=x", "node.id=3"]).config.node_id == 3


def test_missing_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "no.properties"
    assert problems(files=(file,)) == (f"{file}: not found",)


def test_malformed_file_is_reported_with_the_line(tmp_path: Path) -> None:
    file = write(tmp_path / "x.properties", "node.id=1\nlog.dirs=\\u12\n")
    assert problems(files=(file,)) == (
        f"{file}:2: \\u must be followed by four hexadecimal digits",
    )


@pytest.mark.parametrize("override", ["node.id", "=3", ""])
def test_override_without_name_or_value_is_reported(override: str) -> None:
    assert problems(override) == (f"-o {override}: expected name=value",)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"log.dirs=/d\xc3\xa9", "/dé"),
        (b"log.dirs=/d\xe9", "/dé"),
        (b"\xef\xbb\xbflog.dirs=/d", "/d"),
    ],
)
def test_file_may_be_utf_8_or_latin_1(tmp_path: Path, data: bytes, expected: str) -> None:
    file = tmp_path / "x.properties"
    file.write_bytes(data)
    assert load_config([file]).config.log_dirs == (expected,)


@pytest.mark.parametrize(
    ("variable", "expected"), [("", None), ("/s", "/s"), ("/s:/t", "/s"), (":", None)]
)
def test_first_state_directory_is_used(variable: str, expected: str | None) -> None:
    config = load_config([], state_directories=variable).config
    assert config.state_directory == expected
    assert config.log_dirs is None


def test_alias_sets_the_setting() -> None:
    loaded = load_config([], ["broker.id=7", "log.dir=/a"])
    assert (loaded.config.node_id, loaded.config.log_dirs) == (7, ("/a",))
    assert loaded.config.explicit == {"node.id", "log.dirs"}
    assert loaded.warnings == ()


def test_loader_warns_when_alias_and_name_have_different_values() -> None:
    loaded = load_config([], ["node.id=1", "broker.id=1", "broker.id=2", "node.id=3"])
    assert loaded.config.node_id == 3
    assert loaded.warnings == (
        "-o node.id=3 overrides -o broker.id=2: both names refer to the same setting",
    )


def test_warning_for_an_unknown_name_suggests_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path / "x.properties", "log.retention.hour=1\ncolour=red\n")
    assert load_config([file]).warnings == (
        f"{file}:1: log.retention.hour is not a setting; did you mean log.retention.hours?",
        f"{file}:2: colour is not a setting",
    )


@pytest.mark.parametrize(
    "name",
    ["num.io.threads", "zookeeper.clientCnxnSocket", "listener.name.inside.ssl.keystore.password"],
)
def test_warning_for_an_unused_kafka_setting_omits_the_value(name: str) -> None:
    assert load_config([], [f"{name}=secret"]).warnings == (
        f"-o {name} is a Kafka setting that plog does not use yet",
    )


def test_authorizer_is_rejected_because_acls_are_not_enforced() -> None:
    [problem] = problems("authorizer.class.name=org.example.Authorizer")
    assert "every client that can connect may perform any operation" in problem
    assert load_config([], ["authorizer.class.name="]).config == BrokerConfig()


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (
            ["listeners=SASL_SSL://:1"],
            "-o listeners=SASL_SSL://:1: cannot open listener SASL_SSL://:1: security protocol",
        ),
        (["listeners=SSL://:1"], "ssl.keystore.location is not set: a TLS listener requires a PEM"),
        (
            ["inter.broker.listener.name=INSIDE"],
            "-o inter.broker.listener.name=INSIDE: is not the name of a listener",
        ),
        (
            ["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"],
            "-o inter.broker.listener.name=PLAINTEXT: cannot be combined with security.inter",
        ),
        (["listeners="], "-o listeners=: does not contain a listener for clients"),
        (["listener.security.protocol.map=A"], "-o listener.security.protocol.map=A: 'A' does not"),
        (
            ["listener.security.protocol.map=A:PLAINTEXT"],
            "listeners=PLAINTEXT://:9092 (the default): listener.security.protocol.map has no",
        ),
        (["advertised.listeners=X://a:1"], "-o advertised.listeners=X://a:1: listener.security"),
        (["log.dirs="], "-o log.dirs=: does not contain any directories"),
        (
            ["queued.max.request.bytes=1000"],
            "-o queued.max.request.bytes=1000: is below socket.request.max.bytes (104857600)",
        ),
    ],
)
def test_inconsistent_settings_are_reported(overrides: list[str], problem: str) -> None:
    [found] = problems(*overrides)
    assert found.startswith(problem)


def test_request_memory_may_be_unlimited_as_in_kafka() -> None:
    assert load_config([], ["queued.max.request.bytes=-1"]).config.queued_max_request_bytes == -1


KAFKA_SERVER_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
log.dirs=/tmp/kraft-combined-logs
log.retention.hours=168
"""


def test_kafkas_server_properties_load_with_warnings_only(tmp_path: Path) -> None:
    file = write(tmp_path / "server.properties", KAFKA_SERVER_PROPERTIES)
    loaded = load_config([file])
    assert [str(x) for x in loaded.config.bound_listeners()] == ["PLAINTEXT://:9092"]
    assert [str(x) for x in loaded.config.advertised_by_name().values()] == [
        "PLAINTEXT://localhost:9092"
    ]
    assert all("plog does not use yet" in warning for warning in loaded.warnings)
    assert len(loaded.warnings) == 3


def test_log_level_may_be_in_capitals() -> None:
    assert load_config([], ["plog.log.level=DEBUG"]).config.plog_log_level == "debug"
    assert problems("plog.log.level=LOUD")


@pytest.mark.parametrize("wrong", ["num.partitions=0", "log.dirs="])
def test_config_error_contains_the_warnings(wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([], [wrong, "num.partition=3"])
    assert caught.value.warnings == (
        "-o num.partition is not a setting; did you mean num.partitions?",
    )


def test_reload_applies_reloadable_settings_and_lists_the_others() -> None:
    old = load_config([], ["node.id=1", "log.retention.hours=5"]).config
    new = load_config([], ["node.id=2", "plog.log.level=debug", "listeners=PLAINTEXT://:1"]).config
    reload = reloadable(old, new)
    assert reload.applied == ("plog.log.level", "log.retention.hours")
    assert reload.needs_restart == ("node.id", "listeners")
    assert (reload.config.node_id, reload.config.listeners) == (1, old.listeners)
    assert (reload.config.plog_log_level, reload.config.log_retention_hours) == ("debug", 168)
    assert reload.config.explicit == {"node.id", "plog.log.level"}


def test_reload_of_equal_settings_changes_nothing() -> None:
    config = load_config([], ["node.id=4"]).config
    reload = reloadable(config, load_config([], ["node.id=4"]).config)
    assert reload.config == config
    assert (reload.applied, reload.needs_restart) == ((), ())
