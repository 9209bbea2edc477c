"""Check the ``ssl.keystore.…`` and ``ssl.truststore.…`` settings of clients and the broker.

Keys and certificates are in PEM format, in a file or in the setting itself. Other TLS settings are
checked in plog/client/settings/security.py for clients and in plogd/config/tls_settings.py for the
broker. Source: Kafka 4.3 DefaultSslEngineFactory; KIP-651.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

# Neither OpenSSL nor the package cryptography reads Java's own format, but users who have such a
# file also have keytool.
CONVERT_TRUSTSTORE = (
    "convert it once: keytool -list -rfc -keystore FILE > ca.pem; then set"
    " ssl.truststore.type=PEM and ssl.truststore.location=ca.pem"
)


def convert_keystore(name: str) -> str:
    """Return instructions for converting a Java keystore to PEM, in files named after `name`."""
    # keytool writes only certificates in PEM format, not keys. Therefore openssl converts the keys,
    # from PKCS12.
    return (
        f"convert it once: keytool -importkeystore -srckeystore FILE -destkeystore {name}.p12"
        f" -deststoretype PKCS12 && openssl pkcs12 -in {name}.p12 -out {name}.pem (without the"
        " first command for a PKCS12 file); then set ssl.keystore.type=PEM,"
        f" ssl.keystore.location={name}.pem and ssl.key.password"
    )


class PemSettings(Protocol):
    """The settings that the checks read."""

    # These are properties because the settings are frozen: a plain attribute of a protocol would
    # have to accept assignments.
    @property
    def ssl_keystore_type(self) -> str: ...
    @property
    def ssl_keystore_location(self) -> str | None: ...
    @property
    def ssl_keystore_key(self) -> str | None: ...
    @property
    def ssl_keystore_certificate_chain(self) -> str | None: ...
    @property
    def ssl_truststore_type(self) -> str: ...
    @property
    def ssl_truststore_location(self) -> str | None: ...
    @property
    def ssl_truststore_certificates(self) -> str | None: ...


def check_keystore(settings: PemSettings, *, convert: str) -> Iterator[tuple[str, str]]:
    """Yield problems with the keystore settings as (setting, problem) pairs.

    All of the settings are optional. `convert` explains how to convert a Java keystore.
    """
    key, chain = settings.ssl_keystore_key, settings.ssl_keystore_certificate_chain
    if settings.ssl_keystore_type.upper() != "PEM":
        yield "ssl.keystore.type", f"only PEM is supported; {convert}"
    # As in Kafka's DefaultSslEngineFactory, two keys are an error instead of an order of
    # precedence.
    elif key and settings.ssl_keystore_location:
        yield "ssl.keystore.key", "cannot be set together with ssl.keystore.location; remove one"
    # As in Kafka, half of a pair is an error. Otherwise, a client would connect without a
    # certificate, and only the broker would report the cause.
    elif key and not chain:
        yield "ssl.keystore.key", "requires ssl.keystore.certificate.chain"
    elif chain and not key:
        yield "ssl.keystore.certificate.chain", "requires ssl.keystore.key"


def check_truststore(settings: PemSettings) -> Iterator[tuple[str, str]]:
    """Yield problems with the truststore settings as (setting, problem) pairs."""
    if settings.ssl_truststore_type.upper() != "PEM":
        yield "ssl.truststore.type", f"only PEM is supported; {CONVERT_TRUSTSTORE}"
    elif settings.ssl_truststore_location and settings.ssl_truststore_certificates:
        yield (
            "ssl.truststore.certificates",
            "cannot be set together with ssl.truststore.location; remove one",
        )
