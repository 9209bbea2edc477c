"""Settings of connections to ZooKeeper that brokers and consumers share.

Names, types and bounds are those of Kafka 3.9. Keys and certificates must be PEM. Source: Kafka 3.9
ZkConfigs; KIP-515.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from plog.pem_settings import check_keystore, check_truststore, convert_keystore
from plog.settings import SettingType, setting, settings_of

_PREFIX: Final = "zookeeper."
_TLS_PREFIX: Final = "zookeeper.ssl."


@dataclass(frozen=True, kw_only=True)
class ZooKeeperTlsSettings:
    """The settings of TLS for connections to ZooKeeper."""

    zookeeper_ssl_client_enable: bool = setting(
        "zookeeper.ssl.client.enable",
        False,
        "Whether to connect to ZooKeeper with TLS. `zookeeper.clientCnxnSocket`, which Kafka also"
        " requires for this, is not needed.",
    )
    zookeeper_ssl_keystore_type: str = setting(
        "zookeeper.ssl.keystore.type",
        "PEM",
        "Format of the keystore. Only `PEM`, plog's default, is supported.",
    )
    zookeeper_ssl_keystore_location: str | None = setting(
        "zookeeper.ssl.keystore.location",
        None,
        "PEM file with a private key and the certificate to present to ZooKeeper, followed by the"
        " intermediate CA certificates.",
        type=SettingType.STRING,
    )
    zookeeper_ssl_keystore_password: str | None = setting(
        "zookeeper.ssl.keystore.password",
        None,
        "Password of the private key in `zookeeper.ssl.keystore.location`.",
        type=SettingType.PASSWORD,
    )
    zookeeper_ssl_truststore_type: str = setting(
        "zookeeper.ssl.truststore.type",
        "PEM",
        "Format of the truststore. Only `PEM`, plog's default, is supported.",
    )
    zookeeper_ssl_truststore_location: str | None = setting(
        "zookeeper.ssl.truststore.location",
        None,
        "PEM file with the CA certificates to trust in connections to ZooKeeper (default: the"
        " system's CA certificates).",
        type=SettingType.STRING,
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = setting(
        "zookeeper.ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        "TLS versions for the connections to ZooKeeper.",
        one_of=("TLSv1.2", "TLSv1.3"),
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] = setting(
        "zookeeper.ssl.cipher.suites",
        (),
        "TLS cipher suites for the connections to ZooKeeper, by their standard names, as in Kafka"
        " (default: OpenSSL's strong suites).",
        importance="low",
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "https",
        "Whether a server's certificate must contain its host name: `https` requires this. An empty"
        " value disables the check.",
        one_of=("https", ""),
        any_case=True,
    )
    zookeeper_ssl_crl_enable: bool = setting(
        "zookeeper.ssl.crl.enable",
        False,
        "Whether to reject certificates in revocation lists. Only `false` is supported.",
        importance="low",
    )
    zookeeper_ssl_ocsp_enable: bool = setting(
        "zookeeper.ssl.ocsp.enable",
        False,
        "Whether to ask OCSP servers about revoked certificates. Only `false` is supported.",
        importance="low",
    )


def tls_properties(settings: ZooKeeperTlsSettings) -> dict[str, str]:
    """Return the TLS settings as in a properties file, without those that have their defaults."""
    # The settings that are not supported have their defaults.
    return {
        row.name: row.format(value) or ""
        for row in settings_of(ZooKeeperTlsSettings).values()
        if (value := getattr(settings, row.attribute)) != row.default
    }


def connect_problem(connect: str, user: str = "plog.metadata.store=zookeeper") -> str:
    """Return what is wrong with ``zookeeper.connect``, which `user` requires; "" if it is valid.

    >>> connect_problem("zk1:2181,[::1]:2182/kafka"), connect_problem("zk1:2181/")
    ('', '')
    >>> connect_problem("zk1:x/kafka")
    "'zk1:x' is not HOST:PORT"
    """
    if not connect.strip():
        return f"{user} requires the address of ZooKeeper: HOST:PORT[,HOST:PORT...][/CHROOT]"
    hosts, slash, chroot = connect.partition("/")
    for each in hosts.split(","):
        host, _, port = each.strip().rpartition(":") if _has_port(each) else (each.strip(), "", "1")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            return f"{each.strip()!r} is not HOST:PORT"
    if slash and chroot and any(name in ("", ".", "..") for name in chroot.split("/")):
        return f"{slash}{chroot} is not the path of a znode"
    return ""


def _has_port(address: str) -> bool:
    # The colons of an IPv6 address are in brackets.
    return ":" in address.rpartition("]")[2]


def check_zookeeper_tls(
    settings: ZooKeeperTlsSettings, explicit: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Yield the problems with the settings as (setting, problem) pairs. The files are not read."""
    if not settings.zookeeper_ssl_client_enable:
        # Kafka would connect without TLS and without a message.
        for name in sorted(explicit):
            if name.startswith(_TLS_PREFIX) and name != "zookeeper.ssl.client.enable":
                yield name, "has no effect without zookeeper.ssl.client.enable=true"
        return
    pem = _Pem(settings)
    for name, problem in (
        *check_keystore(pem, convert=convert_keystore("zookeeper-client")),
        *check_truststore(pem),
    ):
        yield _PREFIX + name, problem.replace(" ssl.", f" {_PREFIX}ssl.")
    if not settings.zookeeper_ssl_enabled_protocols:
        yield "zookeeper.ssl.enabled.protocols", "is empty; set at least one TLS version"
    for name, is_set in (
        ("zookeeper.ssl.crl.enable", settings.zookeeper_ssl_crl_enable),
        ("zookeeper.ssl.ocsp.enable", settings.zookeeper_ssl_ocsp_enable),
    ):
        if is_set:
            yield name, "plog does not check whether certificates are revoked; set it to false"


class _Pem:
    """The settings under the names of `PemSettings`; ZooKeeper has no settings with PEM texts."""

    ssl_keystore_key = None
    ssl_keystore_certificate_chain = None
    ssl_truststore_certificates = None

    def __init__(self, settings: ZooKeeperTlsSettings) -> None:
        self.ssl_keystore_type = settings.zookeeper_ssl_keystore_type
        self.ssl_keystore_location = settings.zookeeper_ssl_keystore_location
        self.ssl_truststore_type = settings.zookeeper_ssl_truststore_type
        self.ssl_truststore_location = settings.zookeeper_ssl_truststore_location
