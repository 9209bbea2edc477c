"""The settings for TLS and SASL: encryption, and authentication of brokers and clients.

They are part of `ClientSettings` (client.py). Keys and certificates must be in PEM format; unlike
in Kafka, this is the default. network/tls_context.py reads the files, and jaas.py parses
``sasl.jaas.config``. Source: Kafka 4.3 SslConfigs, SaslConfigs; KIP-651.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plog.client.settings.jaas import JaasError, parse_jaas
from plog.pem_settings import check_keystore, check_truststore, convert_keystore
from plog.settings import SettingType, setting

CONVERT_KEYSTORE = convert_keystore("client")
SUPPORTED_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_PASSWORD_MECHANISMS = SUPPORTED_MECHANISMS[:3]


@dataclass(frozen=True, kw_only=True)
class SecuritySettings:
    """The TLS and SASL settings that all clients share."""

    security_protocol: str = setting(
        "security.protocol",
        "PLAINTEXT",
        "How to connect to brokers: unencrypted (`PLAINTEXT`) or over TLS (`SSL`), with or without"
        " SASL authentication.",
        one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        any_case=True,
        group="Security",
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        "PEM",
        "Format of the truststore. Only `PEM`, the default, is supported; Kafka defaults to `JKS`.",
    )
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location",
        None,
        "PEM file with the CA certificates that the client trusts (default: the system's CA"
        " certificates).",
        type=SettingType.STRING,
        importance="high",
        aliases=("ssl.ca.location", "ssl.cafile"),
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates",
        None,
        "Trusted CA certificates as PEM text, instead of `ssl.truststore.location`.",
        type=SettingType.PASSWORD,
        importance="high",
        aliases=("ssl.ca.pem",),
    )
    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        "PEM",
        "Format of the keystore. Only `PEM`, the default, is supported; Kafka defaults to `JKS`.",
    )
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location",
        None,
        "PEM file with the client's private key, its certificate and intermediate certificates, for"
        " brokers that require a client certificate.",
        type=SettingType.STRING,
        importance="high",
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key",
        None,
        "Private key as PEM text, instead of `ssl.keystore.location`.",
        type=SettingType.PASSWORD,
        importance="high",
        aliases=("ssl.key.pem",),
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain",
        None,
        "Certificate chain for `ssl.keystore.key` as PEM text, the client's certificate first.",
        type=SettingType.PASSWORD,
        importance="high",
        aliases=("ssl.certificate.pem",),
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password",
        None,
        "Password for an encrypted private key.",
        type=SettingType.PASSWORD,
        importance="high",
        aliases=("ssl.password",),
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        "https",
        "`https`: the broker's certificate must match its host name. Empty: any certificate of a"
        " trusted CA is accepted, so anyone with such a certificate can impersonate the broker.",
        one_of=("https", ""),
        spellings=(("none", ""),),
        any_case=True,
        importance="low",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        "TLS versions that the client may use.",
        one_of=("TLSv1.2", "TLSv1.3"),
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        (),
        "Cipher suites that the client may use, specified by their standard names, as in Kafka"
        " (default: OpenSSL's strong suites).",
        importance="low",
    )

    sasl_mechanism: str = setting(
        "sasl.mechanism",
        "GSSAPI",
        "SASL mechanism. Kafka's default, `GSSAPI` (Kerberos), is not supported; choose another.",
        one_of=("GSSAPI", *SUPPORTED_MECHANISMS),
        aliases=("sasl.mechanisms",),
    )
    sasl_jaas_config: str | None = setting(
        "sasl.jaas.config",
        None,
        "User name and password in Java's JAAS format: `…ScramLoginModule required username="
        '"alice" password="…";`.',
        type=SettingType.PASSWORD,
    )
    sasl_username: str | None = setting(
        "sasl.username",
        None,
        "User name, instead of `sasl.jaas.config`. The setting comes from librdkafka; Kafka does"
        " not have it.",
        type=SettingType.STRING,
        aliases=("sasl.plain.username",),
    )
    sasl_password: str | None = setting(
        "sasl.password",
        None,
        "Password, instead of `sasl.jaas.config`. The setting comes from librdkafka; Kafka does"
        " not have it.",
        type=SettingType.PASSWORD,
        aliases=("sasl.plain.password",),
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        "sasl.oauthbearer.token.endpoint.url",
        None,
        "`file:` URL of a file that contains the `OAUTHBEARER` token; the client reads the file"
        " at each authentication. To get tokens from a server, pass a function,"
        " `sasl_oauthbearer_token=…`.",
        type=SettingType.STRING,
    )

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether the client authenticates each connection with SASL."""
        return self.security_protocol.startswith("SASL")


def check_tls(settings: SecuritySettings) -> Iterator[tuple[str, str]]:
    """Yield problems with the TLS settings, as (name of one of them, problem).

    The function does not read the files.
    """
    yield from check_truststore(settings)
    yield from check_keystore(settings, convert=CONVERT_KEYSTORE)
    if not settings.ssl_enabled_protocols:
        yield "ssl.enabled.protocols", "is empty; set at least one TLS version"


def check_sasl(settings: SecuritySettings, *, has_token: bool) -> Iterator[tuple[str, str]]:
    """Yield problems with the SASL settings, as (name of one of them, problem)."""
    mechanism = settings.sasl_mechanism
    if mechanism not in SUPPORTED_MECHANISMS:
        choices = ", ".join(SUPPORTED_MECHANISMS)
        yield "sasl.mechanism", f"Kerberos is not supported; choose one of {choices}"
    elif mechanism in _PASSWORD_MECHANISMS:
        yield from _check_password(settings)
    elif not has_token:
        # If the application passes a function, no other settings are needed.
        yield from _check_token_file(settings)


def _check_password(settings: SecuritySettings) -> Iterator[tuple[str, str]]:
    line, mechanism = settings.sasl_jaas_config, settings.sasl_mechanism
    # The username and password must be either in sasl.jaas.config or in sasl.username and
    # sasl.password.
    if line is None:
        if not settings.sasl_username or settings.sasl_password is None:
            missing = "sasl.password" if settings.sasl_username else "sasl.username"
            yield (
                missing,
                f"{mechanism} requires sasl.username and sasl.password, or sasl.jaas.config",
            )
        return
    if settings.sasl_username is not None:
        yield "sasl.username", "conflicts with sasl.jaas.config; set only one of them"
    try:
        entry = parse_jaas(line)
    except JaasError as error:
        yield "sasl.jaas.config", str(error)
        return
    module = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    if entry.module_name != module:
        yield "sasl.jaas.config", f"{mechanism} requires {module}, not {entry.module_name}"
    elif not entry.options.get("username") or "password" not in entry.options:
        # A password can be empty, but a user name cannot.
        yield "sasl.jaas.config", 'must contain username="…" and password="…"'


def _check_token_file(settings: SecuritySettings) -> Iterator[tuple[str, str]]:
    url = settings.sasl_oauthbearer_token_endpoint_url
    if not url:
        yield (
            "sasl.mechanism",
            "OAUTHBEARER requires a function that returns a token, sasl_oauthbearer_token=, or"
            " sasl.oauthbearer.token.endpoint.url with the file: URL of a token file",
        )
    elif not url.startswith("file:"):
        # KIP-768 also allows http URLs. They need an OAuth client, which an application can provide
        # as a function.
        yield (
            "sasl.oauthbearer.token.endpoint.url",
            "only file: URLs are supported; to get the token from a server, pass a function as"
            " sasl_oauthbearer_token=",
        )


def doubtful_security(settings: SecuritySettings, explicit: frozenset[str]) -> Iterator[str]:
    """Yield a warning for settings that have no effect with the security protocol."""
    protocol = settings.security_protocol
    for prefix, applies, wanted in (
        ("ssl.", settings.uses_tls, "SSL or SASL_SSL"),
        ("sasl.", settings.uses_sasl, "SASL_SSL or SASL_PLAINTEXT"),
    ):
        names = sorted(name for name in explicit if name.startswith(prefix))
        if names and not applies:
            yield (
                f"{', '.join(names)}: ignored, because security.protocol is {protocol}; set it to"
                f" {wanted}"
            )
