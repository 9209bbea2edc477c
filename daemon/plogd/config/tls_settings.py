"""TLS settings: a listener's certificate, and the clients that it accepts.

`BrokerConfig` (broker_config.py) inherits them; ``listener.name.<name>.ssl.…`` sets a value for one
listener (listener_overrides.py). Names are Kafka's. Keys and certificates must be PEM, which is
plog's default but not Kafka's. net/tls/tls_files.py reads and validates the files.
Source: Kafka 4.3 SslConfigs, DefaultSslEngineFactory; KIP-651.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plog.pem_settings import check_keystore, check_truststore, convert_keystore
from plog.settings import SettingType, setting

CONVERT_KEYSTORE = convert_keystore("broker")


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """The TLS settings of the broker, or the settings in effect for one listener."""

    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        "PEM",  # KIP-651 added PEM; only Java programs use JKS.
        "Format of the keystore. Only `PEM`, plog's default, is supported; Kafka's default is"
        " `JKS`.",
        group="TLS",
        update="reload",
    )
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location",
        None,
        "PEM file with the broker's private key, its certificate, and the intermediate CA"
        " certificates, in this order. Read at startup and on SIGHUP.",
        type=SettingType.STRING,
        importance="high",
        update="reload",
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key",
        None,
        "Private key in PEM format, as an alternative to `ssl.keystore.location`.",
        type=SettingType.PASSWORD,  # The value is the key itself.
        importance="high",
        update="reload",
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain",
        None,
        "Certificate chain for `ssl.keystore.key` in PEM format, starting with the broker's own"
        " certificate.",
        type=SettingType.PASSWORD,  # Kafka's type, although a certificate is public.
        importance="high",
        update="reload",
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password",
        None,
        "Password for an encrypted private key. Set it in a file, because other users on the"
        " machine can see command lines.",
        type=SettingType.PASSWORD,
        importance="high",
        update="reload",
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        "PEM",
        "Format of the truststore. Only `PEM`, plog's default, is supported; Kafka's default is"
        " `JKS`.",
        update="reload",
    )
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location",
        None,
        "PEM file with the certificates of the CAs that sign client certificates. Read at startup"
        " and on SIGHUP.",
        type=SettingType.STRING,
        importance="high",
        update="reload",
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates",
        None,
        "Trusted CA certificates in PEM format, as an alternative to `ssl.truststore.location`.",
        type=SettingType.PASSWORD,
        importance="high",
        update="reload",
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        "none",
        "Whether clients must present a certificate. With `requested`, a client without a"
        " certificate connects as `User:ANONYMOUS`, but an invalid certificate is rejected. Any"
        " value except `none` requires a truststore; Kafka would use Java's default CAs.",
        one_of=("none", "requested", "required"),  # Not reloadable, as in Kafka's SslConfigs.
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        "TLS versions that clients may use.",
        one_of=("TLSv1.2", "TLSv1.3"),  # RFC 8996 deprecates TLS 1.0 and 1.1.
    )
    ssl_protocol: str = setting(
        "ssl.protocol",
        "TLSv1.3",
        "Accepted so that a Kafka configuration file can be used unchanged, but has no effect,"
        " because the setting configures Java. `ssl.enabled.protocols` selects the TLS versions.",
        one_of=("TLS", "TLSv1.2", "TLSv1.3"),
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        (),
        "Cipher suites that clients may use, specified by their standard names, as in Kafka; if"
        " empty, OpenSSL's default strong suites apply. A TLS version without any suite in this"
        " list is not offered.",
        importance="low",
    )


def check_tls(settings: TlsSettings) -> Iterator[tuple[str, str]]:
    """Yield the problems with these settings for a TLS listener, as (setting name, problem).

    The rules are Kafka's, with two additions: a listener needs a key, and it needs a truststore if
    it requests certificates. The files are not read.
    """
    # Both stores are checked, so that the operator sees all problems at once.
    yield from _check_keystore(settings)
    yield from _check_truststore(settings)
    if not settings.ssl_enabled_protocols:
        yield "ssl.enabled.protocols", "is empty; set at least one TLS version"


def _check_keystore(settings: TlsSettings) -> Iterator[tuple[str, str]]:
    problems = list(check_keystore(settings, convert=CONVERT_KEYSTORE))
    yield from problems
    # Kafka starts without a key, and then every handshake fails.
    if not problems and not (settings.ssl_keystore_key or settings.ssl_keystore_location):
        yield (
            "ssl.keystore.location",
            "a TLS listener requires a PEM file with its private key and certificate",
        )


def _check_truststore(settings: TlsSettings) -> Iterator[tuple[str, str]]:
    is_set = settings.ssl_truststore_location or settings.ssl_truststore_certificates
    # Kafka would trust Java's default CAs here; plog has no default CAs for clients.
    is_needed = settings.ssl_client_auth != "none"
    if not is_set and not is_needed:
        return
    problems = list(check_truststore(settings))
    yield from problems
    if not problems and not is_set:
        yield (
            "ssl.client.auth",
            "requires ssl.truststore.location, a PEM file with the certificates of the CAs that"
            " sign client certificates",
        )
