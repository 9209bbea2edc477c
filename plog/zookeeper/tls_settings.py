"""The settings ``zookeeper.ssl.*`` as the TLS configuration of plog's client.

Source: Kafka 3.9 ZooKeeperMainWithTlsSupportForKafka, ZkConfigs; KIP-515.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from plog.client.network.tls_context import Security
from plog.client.settings import ClientSettings

_PREFIX: Final = "zookeeper."
_ALSO_CALLED: Final = {"ssl.protocol": "ssl.enabled.protocols"}
"""Settings that have different names in ZooKeeper and in plog's client."""
_NOT_NEEDED: Final = ("clientCnxnSocket", "ssl.client.enable", "ssl.truststore.password")
"""Settings that plog's client does not need: Java's socket class, the switch for TLS, and the
password of a truststore, because PEM truststores have none."""


def security_of(properties: Mapping[str, str]) -> Security | None:
    """Return the TLS configuration in `properties`. Raises ConfigError."""
    settings = tls_settings(properties)
    # `bootstrap_servers` is a required setting, but only the TLS settings are used.
    return Security.of(ClientSettings.from_options(settings, bootstrap_servers="-:1"))


def tls_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Convert ``zookeeper.ssl.*`` settings into the settings of plog's client.

    >>> tls_settings({"zookeeper.ssl.truststore.location": "ca.pem"})
    {'security.protocol': 'SSL', 'ssl.truststore.location': 'ca.pem'}
    """
    settings = {"security.protocol": "SSL"}
    for name, value in properties.items():
        short = name.removeprefix(_PREFIX)
        if short == name or short in _NOT_NEEDED:
            continue
        if short == "ssl.keystore.password":
            # For a PEM file, ZooKeeper decrypts the key with the keystore's password.
            settings["ssl.key.password"] = value
        else:
            settings[_ALSO_CALLED.get(short, short)] = value
    return settings
