"""Settings of TLS and SASL: how a client knows the broker, and shows who it is itself.

A part of `ClientSettings` (client.py). Kafka's names; of keys and certificates the only
form is PEM, which is the default here and not in Kafka. What the files hold is read by
network/tls_context.py, what a line of JAAS says by jaas.py. Source: Kafka 4.3 SslConfigs,
SaslConfigs; KIP-651.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plog.client.settings.jaas import JaasError, parse_jaas
from plog.pem_settings import check_keystore, check_truststore, convert_keystore
from plog.settings import SettingType, setting

CONVERT_KEYSTORE = convert_keystore("client")
SPOKEN_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_PASSWORD_MECHANISMS = SPOKEN_MECHANISMS[:3]


@dataclass(frozen=True, kw_only=True)
class SecuritySettings:
    """Encryption, certificates, log-in."""

    security_protocol: str = setting(
        "security.protocol",
        "PLAINTEXT",
        "How to talk to brokers: in the clear, over TLS (`SSL`), or either of them with a log-in.",
        one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        any_case=True,
        group="Security",
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        "PEM",
        "Form of the truststore. Only `PEM` is read, which is the default; Kafka's is `JKS`.",
    )
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location",
        None,
        "PEM file with the certificates of the CAs that may have signed a broker's. Without one,"
        " the CAs that the system trusts.",
        type=SettingType.STRING,
        importance="high",
        aliases=("ssl.ca.location", "ssl.cafile"),
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates",
        None,
        "The same certificates themselves as PEM, instead of `ssl.truststore.location`.",
        type=SettingType.PASSWORD,
        importance="high",
        aliases=("ssl.ca.pem",),
    )
    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        "PEM",
        "Form of the keystore. Only `PEM` is read, which is the default; Kafka's is `JKS`.",
    )
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location",
        None,
        "PEM file with this client's private key, its certificate, and those between it and the"
        " CA's; for brokers that ask for one.",
        type=SettingType.STRING,
        importance="high",
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key",
        None,
        "The private key itself as PEM, instead of `ssl.keystore.location`.",
        type=SettingType.PASSWORD,
        importance="high",
        aliases=("ssl.key.pem",),
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain",
        None,
        "The certificates that belong to `ssl.keystore.key`, as PEM, the client's own first.",
        type=SettingType.PASSWORD,
        importance="high",
        aliases=("ssl.certificate.pem",),
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password",
        None,
        "Password of an encrypted private key.",
        type=SettingType.PASSWORD,
        importance="high",
        aliases=("ssl.password",),
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        "https",
        "`https`: the broker's certificate has to name the host we connect to. Empty: any"
        " certificate of a trusted CA will do, so that its other customers may play the broker.",
        one_of=("https", ""),
        spellings=(("none", ""),),
        any_case=True,
        importance="low",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        "Versions of TLS that may be spoken.",
        one_of=("TLSv1.2", "TLSv1.3"),
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        (),
        "Cipher suites that may be used, by their standard names as in Kafka; empty: OpenSSL's own"
        " choice of strong ones.",
        importance="low",
    )

    sasl_mechanism: str = setting(
        "sasl.mechanism",
        "GSSAPI",
        "How to log in. Kerberos (`GSSAPI`), Kafka's default, is not spoken by plog: choose"
        " another.",
        one_of=("GSSAPI", *SPOKEN_MECHANISMS),
        aliases=("sasl.mechanisms",),
    )
    sasl_jaas_config: str | None = setting(
        "sasl.jaas.config",
        None,
        "User and password as a line of Java's JAAS: `…ScramLoginModule required username="
        '"alice" password="…";`.',
        type=SettingType.PASSWORD,
    )
    sasl_username: str | None = setting(
        "sasl.username",
        None,
        "The user, instead of `sasl.jaas.config`. librdkafka's name: Kafka has none.",
        type=SettingType.STRING,
        aliases=("sasl.plain.username",),
    )
    sasl_password: str | None = setting(
        "sasl.password",
        None,
        "The user's password, instead of `sasl.jaas.config`. librdkafka's name: Kafka has none.",
        type=SettingType.PASSWORD,
        aliases=("sasl.plain.password",),
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        "sasl.oauthbearer.token.endpoint.url",
        None,
        "`file:` URL of a file with the token for `OAUTHBEARER`, read at each log-in. Tokens from a"
        " server are got by a function, `sasl_oauthbearer_token=…`, in the program.",
        type=SettingType.STRING,
    )

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether each connection begins with a log-in."""
        return self.security_protocol.startswith("SASL")


def check_tls(settings: SecuritySettings) -> Iterator[tuple[str, str]]:
    """What is wrong with the settings of TLS, as (name of one of them, problem).

    Files are not looked at.
    """
    yield from check_truststore(settings)
    yield from check_keystore(settings, convert=CONVERT_KEYSTORE)
    if not settings.ssl_enabled_protocols:
        yield "ssl.enabled.protocols", "names no version of TLS"


def check_sasl(settings: SecuritySettings, *, has_token: bool) -> Iterator[tuple[str, str]]:
    """What is wrong with the settings of the log-in, as (name of one of them, problem)."""
    mechanism = settings.sasl_mechanism
    if mechanism not in SPOKEN_MECHANISMS:
        choices = ", ".join(SPOKEN_MECHANISMS)
        yield "sasl.mechanism", f"Kerberos is not spoken by plog; choose one of {choices}"
    elif mechanism in _PASSWORD_MECHANISMS:
        yield from _check_password(settings)
    elif not has_token:
        yield from _check_token_file(settings)


def _check_password(settings: SecuritySettings) -> Iterator[tuple[str, str]]:
    line, mechanism = settings.sasl_jaas_config, settings.sasl_mechanism
    if line is None:
        if not settings.sasl_username or settings.sasl_password is None:
            missing = "sasl.password" if settings.sasl_username else "sasl.username"
            yield missing, f"{mechanism} needs sasl.username and sasl.password, or sasl.jaas.config"
        return
    if settings.sasl_username is not None:
        yield "sasl.username", "sasl.jaas.config is set as well: which one is meant?"
    try:
        entry = parse_jaas(line)
    except JaasError as error:
        yield "sasl.jaas.config", str(error)
        return
    module = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    if entry.module_name != module:
        yield "sasl.jaas.config", f"{mechanism} goes with {module}, not {entry.module_name}"
    elif not entry.options.get("username") or "password" not in entry.options:
        yield "sasl.jaas.config", 'needs username="…" and password="…"'


def _check_token_file(settings: SecuritySettings) -> Iterator[tuple[str, str]]:
    url = settings.sasl_oauthbearer_token_endpoint_url
    if not url:
        yield (
            "sasl.mechanism",
            "OAUTHBEARER needs a function that gets a token, sasl_oauthbearer_token=, or"
            " sasl.oauthbearer.token.endpoint.url with the file: URL of one",
        )
    elif not url.startswith("file:"):
        yield (
            "sasl.oauthbearer.token.endpoint.url",
            "only a file: URL is read; give the function that asks a server for the token as"
            " sasl_oauthbearer_token=",
        )


def doubtful_security(settings: SecuritySettings, explicit: frozenset[str]) -> Iterator[str]:
    """What is set and has no effect, because the protocol is another, a line each."""
    protocol = settings.security_protocol
    for prefix, applies, wanted in (
        ("ssl.", settings.uses_tls, "SSL or SASL_SSL"),
        ("sasl.", settings.uses_sasl, "SASL_SSL or SASL_PLAINTEXT"),
    ):
        names = sorted(name for name in explicit if name.startswith(prefix))
        if names and not applies:
            yield (
                f"{', '.join(names)}: no effect, because security.protocol is {protocol}; it would"
                f" have to be {wanted}"
            )
