"""The settings ``ssl.keystore.…`` and ``ssl.truststore.…``, as clients and the broker have them.

Keys and certificates are PEM, from a file or in the setting itself. What else each of them needs is
in settings/security.py and plogd/config/tls_settings.py. Source: Kafka 4.3
DefaultSslEngineFactory; KIP-651.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

CONVERT_TRUSTSTORE = (
    "convert it once: keytool -list -rfc -keystore FILE > ca.pem; then set"
    " ssl.truststore.type=PEM and ssl.truststore.location=ca.pem"
)


def convert_keystore(name: str) -> str:
    """How a Java keystore becomes PEM, in files called after `name`."""
    return (
        f"convert it once: keytool -importkeystore -srckeystore FILE -destkeystore {name}.p12"
        f" -deststoretype PKCS12 && openssl pkcs12 -in {name}.p12 -out {name}.pem (without the"
        " first command for a PKCS12 file); then set ssl.keystore.type=PEM,"
        f" ssl.keystore.location={name}.pem and ssl.key.password"
    )


class PemSettings(Protocol):
    """The settings that are asked about here."""

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
    """What is wrong with a keystore, as (name of a setting, problem). None at all is not wrong."""
    key, chain = settings.ssl_keystore_key, settings.ssl_keystore_certificate_chain
    if settings.ssl_keystore_type.upper() != "PEM":
        yield "ssl.keystore.type", f"only PEM is read; {convert}"
    elif key and settings.ssl_keystore_location:
        yield "ssl.keystore.key", "ssl.keystore.location is set as well: which one is meant?"
    elif key and not chain:
        yield "ssl.keystore.key", "needs ssl.keystore.certificate.chain beside it"
    elif chain and not key:
        yield "ssl.keystore.certificate.chain", "needs ssl.keystore.key beside it"


def check_truststore(settings: PemSettings) -> Iterator[tuple[str, str]]:
    """What is wrong with a truststore, likewise."""
    if settings.ssl_truststore_type.upper() != "PEM":
        yield "ssl.truststore.type", f"only PEM is read; {CONVERT_TRUSTSTORE}"
    elif settings.ssl_truststore_location and settings.ssl_truststore_certificates:
        yield (
            "ssl.truststore.certificates",
            "ssl.truststore.location is set as well: which one is meant?",
        )
