"""TLS and SASL settings: complete, contradictory and unused combinations."""

from __future__ import annotations

import pytest

from plog.client.settings import ClientSettings, ConfigError

PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="alice" password="secret";'
)
SCRAM = PLAIN.replace("plain.Plain", "scram.Scram")


def _settings(**keywords: object) -> ClientSettings:
    return ClientSettings.from_options(bootstrap_servers="localhost", **keywords)


@pytest.mark.parametrize(
    ("protocol", "tls", "sasl"),
    [
        ("plaintext", False, False),
        ("SSL", True, False),
        ("sasl_plaintext", False, True),
        ("SASL_SSL", True, True),
    ],
)
def test_protocol_selects_tls_and_sasl(protocol: str, tls: bool, sasl: bool) -> None:
    settings = _settings(
        security_protocol=protocol,
        sasl_mechanism="PLAIN",
        sasl_username="a",
        sasl_password="",
    )
    assert (settings.uses_tls, settings.uses_sasl) == (tls, sasl)
    assert settings.security_protocol == protocol.upper()


@pytest.mark.parametrize(
    ("keywords", "problem"),
    [
        ({"ssl_truststore_type": "JKS"}, "ssl_truststore_type=JKS: only PEM is supported; convert"),
        ({"ssl_keystore_type": "PKCS12"}, "only PEM is supported; convert it once: keytool"),
        (
            {"ssl_truststore_location": "a", "ssl_truststore_certificates": "b"},
            "remove one",
        ),
        (
            {"ssl_keystore_location": "a", "ssl_keystore_key": "b"},
            "remove one",
        ),
        ({"ssl_keystore_key": "b"}, "requires ssl.keystore.certificate.chain"),
        ({"ssl_keystore_certificate_chain": "b"}, "requires ssl.keystore.key"),
        ({"ssl_enabled_protocols": []}, "at least one TLS version"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "allowed: any of TLSv1.2, TLSv1.3"),
    ],
)
def test_invalid_tls_settings_are_refused(keywords: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        _settings(security_protocol="SSL", **keywords)


@pytest.mark.parametrize("given", ["", "none", "NONE"])
def test_host_name_is_checked_unless_disabled(given: str) -> None:
    on = _settings(security_protocol="SSL")
    assert on.ssl_endpoint_identification_algorithm == "https"
    off = _settings(security_protocol="SSL", ssl_endpoint_identification_algorithm=given)
    assert off.ssl_endpoint_identification_algorithm == ""


@pytest.mark.parametrize(
    ("keywords", "problem"),
    [
        ({}, r"sasl.mechanism=GSSAPI \(the default\): Kerberos is not supported"),
        ({"sasl_mechanism": "DIGEST-MD5"}, "not one of the allowed values"),
        ({"sasl_mechanism": "PLAIN"}, "sasl.username is not set: PLAIN requires"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "a"}, "sasl.password is not set"),
        ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": SCRAM}, "requires PlainLoginModule"),
        ({"sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": PLAIN}, "ScramLoginModule, not"),
        (
            {"sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN, "sasl_username": "a"},
            "conflicts with sasl.jaas.config",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_jaas_config": "PlainLoginModule required;"},
            "must contain username=",
        ),
        ({"sasl_mechanism": "OAUTHBEARER"}, "requires a function that returns a token"),
        (
            {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": "https://x/token",
            },
            "only file: URLs are supported",
        ),
    ],
)
def test_invalid_sasl_settings_are_refused(keywords: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        _settings(security_protocol="SASL_PLAINTEXT", **keywords)


@pytest.mark.parametrize(
    "keywords",
    [
        {"sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN},
        {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": SCRAM},
        {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "a", "sasl_password": "b"},
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "file:///run/token",
        },
    ],
)
def test_complete_sasl_settings_are_accepted(keywords: dict[str, object]) -> None:
    assert _settings(security_protocol="SASL_SSL", **keywords).warnings == ()


def test_settings_of_another_protocol_cause_a_warning() -> None:
    settings = _settings(ssl_truststore_location="ca.pem", sasl_jaas_config=PLAIN)
    assert settings.warnings == (
        "ssl.truststore.location: ignored, because security.protocol is PLAINTEXT; set it to"
        " SSL or SASL_SSL",
        "sasl.jaas.config: ignored, because security.protocol is PLAINTEXT; set it to"
        " SASL_SSL or SASL_PLAINTEXT",
    )
