"""From files and command line to a BrokerConfig, with everything that can be wrong with them."""

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


def test_nothing_given_means_every_default() -> None:
    loaded = load_config([])
    assert loaded == LoadedConfig(config=BrokerConfig(), warnings=(), sources={})
    assert loaded.config.explicit == frozenset()


def test_the_last_one_wins_file_then_conf_d_then_command_line(tmp_path: Path) -> None:
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


def test_conf_d_is_read_once_after_the_last_file_beside_it(tmp_path: Path) -> None:
    first = write(tmp_path / "a.properties", "num.partitions=2")
    second = write(tmp_path / "b.properties", "num.partitions=3")
    write(tmp_path / "conf.d" / "c.properties", "num.partitions=4")
    assert load_config([first, second]).config.num_partitions == 4


def test_every_wrong_value_is_reported_with_its_place_and_what_is_allowed(tmp_path: Path) -> None:
    file = write(tmp_path / "x.properties", "\nlog.segment.bytes=1\nplog.flush.syncfs=maybe\n")
    assert problems("node.id=x", files=(file,)) == (
        f"{file}:2: log.segment.bytes=1: too small; allowed: at least 1048576 (bytes)",
        f"{file}:3: plog.flush.syncfs=maybe: not one of the possible values; allowed: auto, never",
        "-o node.id=x: not a whole number; allowed: at least 0",
    )


def test_a_wrong_value_that_is_replaced_does_no_harm() -> None:
    assert load_config([], ["node.id=x", "node.id=3"]).config.node_id == 3


def test_a_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "no.properties"
    assert problems(files=(file,)) == (f"{file}: not found",)


def test_a_broken_file_is_a_problem_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path / "x.properties", "node.id=1\nlog.dirs=\\u12\n")
    assert problems(files=(file,)) == (f"{file}:2: \\u needs four hexadecimal digits behind it",)


@pytest.mark.parametrize("override", ["node.id", "=3", ""])
def test_an_override_has_a_name_and_a_value(override: str) -> None:
    assert problems(override) == (f"-o {override}: not of the form name=value",)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"log.dirs=/d\xc3\xa9", "/dé"),
        (b"log.dirs=/d\xe9", "/dé"),
        (b"\xef\xbb\xbflog.dirs=/d", "/d"),
    ],
)
def test_a_file_may_be_utf_8_or_latin_1(tmp_path: Path, data: bytes, expected: str) -> None:
    file = tmp_path / "x.properties"
    file.write_bytes(data)
    assert load_config([file]).config.log_dirs == (expected,)


def test_an_alias_is_the_setting_itself() -> None:
    loaded = load_config([], ["broker.id=7", "log.dir=/a"])
    assert (loaded.config.node_id, loaded.config.log_dirs) == (7, ("/a",))
    assert loaded.config.explicit == {"node.id", "log.dirs"}
    assert loaded.warnings == ()


def test_two_names_of_one_setting_with_two_values_are_warned_about() -> None:
    loaded = load_config([], ["node.id=1", "broker.id=1", "broker.id=2", "node.id=3"])
    assert loaded.config.node_id == 3
    assert loaded.warnings == (
        "-o node.id=3 replaces -o broker.id=2: they are two names of one setting",
    )


def test_an_unknown_name_is_warned_about_with_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path / "x.properties", "log.retention.hour=1\ncolour=red\n")
    assert load_config([file]).warnings == (
        f"{file}:1: log.retention.hour is not a setting; did you mean log.retention.hours?",
        f"{file}:2: colour is not a setting",
    )


@pytest.mark.parametrize(
    "name",
    ["num.io.threads", "zookeeper.connect", "listener.name.inside.ssl.keystore.password"],
)
def test_a_name_only_kafka_uses_is_warned_about_without_its_value(name: str) -> None:
    assert load_config([], [f"{name}=secret"]).warnings == (
        f"-o {name} is known to Kafka, not used by plog yet",
    )


def test_an_authorizer_is_refused_because_ignoring_it_would_open_the_broker() -> None:
    [problem] = problems("authorizer.class.name=org.example.Authorizer")
    assert "everybody who can connect may do everything" in problem
    assert load_config([], ["authorizer.class.name="]).config == BrokerConfig()


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["listeners=SASL_SSL://:1"], "-o listeners=SASL_SSL://:1: SASL_SSL://:1 asks for SASL"),
        (["listeners=SSL://:1"], "ssl.keystore.location is not set: a TLS listener needs a PEM"),
        (
            ["inter.broker.listener.name=INSIDE"],
            "-o inter.broker.listener.name=INSIDE: is not the name of a listener",
        ),
        (
            ["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"],
            "-o inter.broker.listener.name=PLAINTEXT: security.inter.broker.protocol is set as",
        ),
        (["listeners="], "-o listeners=: no listener is left for clients"),
        (["listener.security.protocol.map=A"], "-o listener.security.protocol.map=A: 'A' is not"),
        (
            ["listener.security.protocol.map=A:PLAINTEXT"],
            "listeners=PLAINTEXT://:9092 (the default): listener.security.protocol.map has no",
        ),
        (["advertised.listeners=X://a:1"], "-o advertised.listeners=X://a:1: listener.security"),
        (["log.dirs="], "-o log.dirs=: names no directory"),
        (
            ["queued.max.request.bytes=1000"],
            "-o queued.max.request.bytes=1000: a request of socket.request.max.bytes (104857600)",
        ),
    ],
)
def test_settings_are_checked_together(overrides: list[str], problem: str) -> None:
    [found] = problems(*overrides)
    assert found.startswith(problem)


def test_unbounded_request_memory_is_taken_as_in_kafka() -> None:
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


def test_the_settings_kafka_ships_with_are_taken_with_warnings_only(tmp_path: Path) -> None:
    file = write(tmp_path / "server.properties", KAFKA_SERVER_PROPERTIES)
    loaded = load_config([file])
    assert [str(x) for x in loaded.config.bound_listeners()] == ["PLAINTEXT://:9092"]
    assert [str(x) for x in loaded.config.advertised_by_name().values()] == [
        "PLAINTEXT://localhost:9092"
    ]
    assert all("not used by plog yet" in warning for warning in loaded.warnings)
    assert len(loaded.warnings) == 3


def test_the_level_of_the_log_may_be_written_in_capitals() -> None:
    assert load_config([], ["plog.log.level=DEBUG"]).config.plog_log_level == "debug"
    assert problems("plog.log.level=LOUD")


@pytest.mark.parametrize("wrong", ["num.partitions=0", "log.dirs="])
def test_warnings_are_told_beside_what_is_wrong(wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([], [wrong, "num.partition=3"])
    assert caught.value.warnings == (
        "-o num.partition is not a setting; did you mean num.partitions?",
    )


def test_a_reload_takes_over_what_may_change_and_tells_the_rest() -> None:
    old = load_config([], ["node.id=1", "log.retention.hours=5"]).config
    new = load_config([], ["node.id=2", "plog.log.level=debug", "listeners=PLAINTEXT://:1"]).config
    reload = reloadable(old, new)
    assert reload.applied == ("plog.log.level", "log.retention.hours")
    assert reload.needs_restart == ("node.id", "listeners")
    assert (reload.config.node_id, reload.config.listeners) == (1, old.listeners)
    assert (reload.config.plog_log_level, reload.config.log_retention_hours) == ("debug", 168)
    assert reload.config.explicit == {"node.id", "plog.log.level"}


def test_a_reload_without_change_changes_nothing() -> None:
    config = load_config([], ["node.id=4"]).config
    reload = reloadable(config, load_config([], ["node.id=4"]).config)
    assert reload.config == config
    assert (reload.applied, reload.needs_restart) == ((), ())
