"""Settings of TLS: whose certificate a listener shows, and whose it asks for.

A part of `BrokerConfig` (broker_config.py); ``listener.name.<name>.ssl.…`` gives one listener a
value of its own (listener_overrides.py). Kafka's names; the only form of keys and certificates is
PEM, which is the default here and not in Kafka. What the files hold is read and judged by
net/tls_files.py. Source: Kafka 4.3 SslConfigs, DefaultSslEngineFactory; KIP-651.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plog.pem_settings import check_keystore, check_truststore, convert_keystore
from plog.settings import SettingType, setting

CONVERT_KEYSTORE = convert_keystore("broker")


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """The certificate of a listener, who may connect to it, and how."""

    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        "PEM",
        "Form of the keystore. Only `PEM` is read, which is the default; Kafka's is `JKS`.",
        group="TLS",
        update="reload",
    )
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location",
        None,
        "PEM file with the private key of this broker, its certificate, and those between it and"
        " the certificate of its CA, in this order. Read at the start and again on SIGHUP.",
        type=SettingType.STRING,
        importance="high",
        update="reload",
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key",
        None,
        "The private key itself as PEM, instead of `ssl.keystore.location`.",
        type=SettingType.PASSWORD,
        importance="high",
        update="reload",
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain",
        None,
        "The certificates that belong to `ssl.keystore.key`, as PEM, this broker's own first.",
        type=SettingType.PASSWORD,
        importance="high",
        update="reload",
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password",
        None,
        "Password of an encrypted private key. Other users of a machine can see what stands on a"
        " command line: use a file for it.",
        type=SettingType.PASSWORD,
        importance="high",
        update="reload",
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        "PEM",
        "Form of the truststore. Only `PEM` is read, which is the default; Kafka's is `JKS`.",
        update="reload",
    )
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location",
        None,
        "PEM file with the certificates of the CAs that sign clients. Read at the start and again"
        " on SIGHUP.",
        type=SettingType.STRING,
        importance="high",
        update="reload",
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates",
        None,
        "The same certificates themselves as PEM, instead of `ssl.truststore.location`.",
        type=SettingType.PASSWORD,
        importance="high",
        update="reload",
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        "none",
        "Whether a client has to show a certificate. `requested` lets it connect without one, as"
        " `User:ANONYMOUS`, but not with a wrong one. Unlike Kafka, which trusts Java's own list"
        " then, anything but `none` needs a truststore.",
        one_of=("none", "requested", "required"),
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        "Versions of TLS that clients may use.",
        one_of=("TLSv1.2", "TLSv1.3"),
    )
    ssl_protocol: str = setting(
        "ssl.protocol",
        "TLSv1.3",
        "Taken so that a Kafka file can be used as it is: what it chooses in Kafka is a part of"
        " Java. The versions of TLS are those of `ssl.enabled.protocols`.",
        one_of=("TLS", "TLSv1.2", "TLSv1.3"),
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        (),
        "Cipher suites that clients may use, by their standard names as in Kafka; empty: OpenSSL's"
        " own choice of strong ones. A version of TLS without any of its suites here is not"
        " offered.",
        importance="low",
    )


def check_tls(settings: TlsSettings) -> Iterator[tuple[str, str]]:
    """What is wrong with these settings for a TLS listener, as (name of one of them, problem).

    Kafka's rules, but that a listener without a key, or that asks for certificates without a
    truststore, is refused. Files are not looked at.
    """
    yield from _check_keystore(settings)
    yield from _check_truststore(settings)
    if not settings.ssl_enabled_protocols:
        yield "ssl.enabled.protocols", "names no version of TLS"


def _check_keystore(settings: TlsSettings) -> Iterator[tuple[str, str]]:
    problems = list(check_keystore(settings, convert=CONVERT_KEYSTORE))
    yield from problems
    if not problems and not (settings.ssl_keystore_key or settings.ssl_keystore_location):
        yield (
            "ssl.keystore.location",
            "a TLS listener needs a PEM file with its private key and certificate",
        )


def _check_truststore(settings: TlsSettings) -> Iterator[tuple[str, str]]:
    is_set = settings.ssl_truststore_location or settings.ssl_truststore_certificates
    is_needed = settings.ssl_client_auth != "none"
    if not is_set and not is_needed:
        return
    problems = list(check_truststore(settings))
    yield from problems
    if not problems and not is_set:
        yield (
            "ssl.client.auth",
            "needs ssl.truststore.location, a PEM file with the certificates of the CAs that sign"
            " clients",
        )
