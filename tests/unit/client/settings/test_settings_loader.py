"""Names and values given by users: text, types, files, typos and Java settings."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from plog.client.settings import ConfigError, ConsumerSettings, ProducerSettings

SERVERS = {"bootstrap.servers": "localhost:9092"}


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(text)
    return path


def _problems(**keywords: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        ProducerSettings.from_options(SERVERS, **keywords)
    return caught.value.problems


def test_names_may_have_underscores_and_values_may_be_typed() -> None:
    settings = ProducerSettings.from_options(
        {"bootstrap.servers": ["a:1", "b:2"], "linger_ms": "20", "enable.idempotence": "FALSE"},
        acks=1,
        batch_size=1000,
        compression_type="zstd",
        buffer_memory=1e6,
    )
    assert settings.bootstrap_servers == ("a:1", "b:2")
    assert (settings.linger_ms, settings.batch_size, settings.buffer_memory) == (
        20,
        1000,
        1_000_000,
    )
    assert (settings.acks, settings.required_acks) == ("1", 1)
    assert settings.enable_idempotence is False


def test_none_means_the_default() -> None:
    settings = ProducerSettings.from_options(SERVERS, linger_ms=None, acks=None)
    assert (settings.linger_ms, settings.acks) == (5, "all")
    assert settings.explicit == {"bootstrap.servers"}


def test_path_is_accepted_as_text() -> None:
    settings = ProducerSettings.from_options(
        SERVERS, security_protocol="SSL", ssl_truststore_location=Path("/etc/ca.pem")
    )
    assert settings.ssl_truststore_location == "/etc/ca.pem"


def test_keywords_override_mapping_and_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "bootstrap.servers=a:1\nlinger.ms=1\nacks=0\nclient.id = x\n")
    settings = ProducerSettings.from_file(path, {"linger.ms": 2, "acks": "1"}, linger_ms=3)
    assert (settings.linger_ms, settings.acks, settings.client_id) == (3, "1", "x")
    assert settings.bootstrap_servers == ("a:1",)


def test_unknown_name_is_refused_with_a_suggestion() -> None:
    assert _problems(bach_size=1) == (
        "bach_size is not a setting of this client; did you mean batch_size?",
    )
    with pytest.raises(ConfigError, match=r"did you mean batch\.size\?"):
        ProducerSettings.from_options({**SERVERS, "bach.size": 1})
    assert _problems(colour="red") == ("colour is not a setting of this client",)


def test_invalid_value_is_refused_with_allowed_values() -> None:
    assert _problems(batch_size="many", acks=2, linger_ms=-1, retries=True) == (
        "batch_size=many: not a whole number; allowed: at least 0 (bytes)",
        "acks=2: not one of the allowed values; allowed: all, 0, 1",
        "linger_ms=-1: too small; allowed: at least 0 (ms)",
        "retries=True: not a whole number; allowed: at least 0",
    )


def test_value_of_wrong_type_is_refused() -> None:
    assert "a dict is not valid for this setting" in _problems(linger_ms={})[0]
    assert "not a whole number" in _problems(linger_ms=0.5)[0]
    assert "neither true nor false" in _problems(enable_idempotence=1)[0]


def test_secret_is_not_in_the_error() -> None:
    problems = _problems(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config="hunter2"
    )
    assert problems[0].startswith("sasl_jaas_config=(hidden): does not start with a login module")


def test_setting_under_two_names_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"acks and request\.required\.acks are the same"):
        ProducerSettings.from_options({**SERVERS, "acks": "1", "request.required.acks": "0"})
    same = ProducerSettings.from_options({**SERVERS, "linger.ms": 7, "linger_ms": 7})
    assert same.linger_ms == 7


@pytest.mark.parametrize(
    ("name", "value", "attribute", "expected"),
    [
        ("metadata.broker.list", "x:1", "bootstrap_servers", ("x:1",)),
        ("compression.codec", "lz4", "compression_type", "lz4"),
        ("ssl.ca.location", "ca.pem", "ssl_truststore_location", "ca.pem"),
        ("ssl_cafile", "ca.pem", "ssl_truststore_location", "ca.pem"),
        ("sasl.mechanisms", "PLAIN", "sasl_mechanism", "PLAIN"),
        ("sasl_plain_username", "alice", "sasl_username", "alice"),
        ("max.in.flight", 2, "max_in_flight_requests_per_connection", 2),
    ],
)
def test_aliases_of_other_clients_are_accepted(
    name: str, value: object, attribute: str, expected: object
) -> None:
    given = {name: value} if attribute == "bootstrap_servers" else {**SERVERS, name: value}
    assert getattr(ProducerSettings.from_options(given), attribute) == expected


def test_java_setting_causes_a_logged_warning(caplog: pytest.LogCaptureFixture) -> None:
    name = "org.apache.kafka.common.serialization.StringSerializer"
    with caplog.at_level(logging.WARNING, "plog.client"):
        settings = ProducerSettings.from_options(
            {**SERVERS, "key.serializer": name, "group.id": "g", "sasl.login.class": "x"}
        )
    assert settings.warnings == (
        "key.serializer has no effect: it names a Java class; pass a Python function,"
        " key_serializer=…",
        "group.id has no effect: it is a consumer setting",
        "sasl.login.class has no effect: it names a Java class",
    )
    assert caplog.messages == list(settings.warnings)


def test_dangerous_java_setting_is_refused() -> None:
    (two_phase,) = _problems(transaction_two_phase_commit_enable=True)
    assert "two-phase commit" in two_phase
    assert "pass Python objects" in _problems(interceptor_classes="com.example.Encrypting")[0]
    assert "ssl.key.password" in _problems(ssl_keystore_password="x")[0]


def test_java_keystore_password_error_explains_conversion() -> None:
    assert "convert it once: keytool -list" in _problems(ssl_truststore_password="x")[0]


def test_java_setting_that_matches_behavior_is_accepted() -> None:
    settings = ProducerSettings.from_options(
        {**SERVERS, "client.dns.lookup": "use_all_dns_ips", "enable.metrics.push": False}
    )
    assert settings.warnings == ()
    other = ProducerSettings.from_options({**SERVERS, "enable.metrics.push": True})
    (warning,) = other.warnings
    assert warning.startswith("enable.metrics.push has no effect: ")


def test_refused_setting_may_be_empty() -> None:
    settings = ProducerSettings.from_options(
        {**SERVERS, "interceptor.classes": "", "transaction.two.phase.commit.enable": False}
    )
    assert settings.warnings == ()


def test_invalid_value_in_file_is_reported_with_its_line(tmp_path: Path) -> None:
    path = _file(tmp_path, "# mine\nbootstrap.servers=a:1\n\nacks=two\nlinger.ms=x\n")
    with pytest.raises(ConfigError) as caught:
        ProducerSettings.from_file(path)
    assert [problem.partition(": ")[0::2] for problem in caught.value.problems] == [
        (f"{path}:4", "acks=two: not one of the allowed values; allowed: all, 0, 1"),
        (f"{path}:5", "linger.ms=x: not a whole number; allowed: at least 0 (ms)"),
    ]


def test_conflict_in_file_is_reported_with_its_line(tmp_path: Path) -> None:
    path = _file(tmp_path, "bootstrap.servers=a:1\nheartbeat.interval.ms=50000\n")
    with pytest.raises(ConfigError, match=r"properties:2: heartbeat.interval.ms=50000: must be"):
        ConsumerSettings.from_file(path)


def test_unknown_name_in_file_is_only_a_warning(tmp_path: Path) -> None:
    path = _file(
        tmp_path, "bootstrap.servers=a:1\nbach.size=1\nmine=2\nschema.registry.url=http://x\n"
    )
    assert ProducerSettings.from_file(path).warnings == (
        f"{path}:2: bach.size is not a setting of this client; did you mean batch.size?",
        f"{path}:3: mine is not a setting of this client",
    )


@pytest.mark.parametrize(
    "line", ["security.protocols=SSL", "sasl.frobnicate=1", "ss_cafile=ca.pem"]
)
def test_unknown_security_name_in_file_is_refused(tmp_path: Path, line: str) -> None:
    path = _file(tmp_path, f"bootstrap.servers=a:1\n{line}\n")
    with pytest.raises(ConfigError, match="is not a setting of this client"):
        ProducerSettings.from_file(path)


def test_last_line_of_a_file_wins(tmp_path: Path) -> None:
    path = _file(tmp_path, "bootstrap.servers=a:1\nacks=0\nacks=1\n")
    assert ProducerSettings.from_file(path).acks == "1"


def test_unreadable_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.properties: not found"):
        ProducerSettings.from_file(tmp_path / "nowhere.properties")
    path = _file(tmp_path, "bootstrap.servers=\\u12\n")
    with pytest.raises(ConfigError, match=r"properties:1: \\u must be followed"):
        ProducerSettings.from_file(path)


def test_token_function_is_accepted() -> None:
    options = {**SERVERS, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    settings = ProducerSettings.from_options(options, sasl_oauthbearer_token=lambda: "t")
    assert settings.sasl_oauthbearer_token is not None
    assert settings.sasl_oauthbearer_token() == "t"
    in_mapping = ProducerSettings.from_options({**options, "sasl_oauthbearer_token": lambda: "u"})
    assert in_mapping.sasl_oauthbearer_token is not None
    with pytest.raises(ConfigError, match="a function that returns a token"):
        ProducerSettings.from_options(options, sasl_oauthbearer_token="t")
