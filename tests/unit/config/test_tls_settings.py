"""Checks across the TLS settings of a listener."""

from __future__ import annotations

from typing import Any

import pytest

from plogd.config.tls_settings import TlsSettings, check_tls

FILE = {"ssl_keystore_location": "/k.pem"}
INLINE = {"ssl_keystore_key": "key", "ssl_keystore_certificate_chain": "chain"}


@pytest.mark.parametrize(
    "values",
    [
        FILE,
        INLINE,
        {**FILE, "ssl_keystore_type": "pem"},
        {**FILE, "ssl_client_auth": "required", "ssl_truststore_location": "/t.pem"},
        {**FILE, "ssl_client_auth": "requested", "ssl_truststore_certificates": "certificates"},
        # Without client authentication, the truststore is not read.
        {**FILE, "ssl_truststore_type": "JKS"},
    ],
)
def test_consistent_settings_are_accepted(values: dict[str, Any]) -> None:
    assert list(check_tls(TlsSettings(**values))) == []


@pytest.mark.parametrize(
    ("values", "name", "remedy"),
    [
        ({}, "ssl.keystore.location", "private key and certificate"),
        ({**FILE, "ssl_keystore_type": "JKS"}, "ssl.keystore.type", "keytool -importkeystore"),
        ({**FILE, "ssl_keystore_type": "PKCS12"}, "ssl.keystore.type", "openssl pkcs12"),
        ({**FILE, **INLINE}, "ssl.keystore.key", "remove one"),
        ({"ssl_keystore_key": "key"}, "ssl.keystore.key", "certificate.chain"),
        (
            {"ssl_keystore_certificate_chain": "chain"},
            "ssl.keystore.certificate.chain",
            "ssl.keystore.key",
        ),
        ({**FILE, "ssl_client_auth": "requested"}, "ssl.client.auth", "ssl.truststore.location"),
        (
            {**FILE, "ssl_truststore_type": "JKS", "ssl_truststore_location": "/t.jks"},
            "ssl.truststore.type",
            "keytool -list -rfc",
        ),
        (
            {**FILE, "ssl_truststore_location": "/t", "ssl_truststore_certificates": "x"},
            "ssl.truststore.certificates",
            "remove one",
        ),
        (
            {**FILE, "ssl_enabled_protocols": ()},
            "ssl.enabled.protocols",
            "set at least one TLS version",
        ),
    ],
)
def test_inconsistent_settings_are_reported_with_a_remedy(
    values: dict[str, Any], name: str, remedy: str
) -> None:
    [(found, problem)] = check_tls(TlsSettings(**values))
    assert found == name
    assert remedy in problem
