"""The connection to ZooKeeper of a consumer with ``coordination=zookeeper``."""

from __future__ import annotations

from typing import Any

from plog.client.settings import ConsumerSettings
from plog.client.zookeeper.ports import ZooKeeperConnection
from plog.settings import ConfigError
from plog.zookeeper_settings import tls_properties


def make_zookeeper(settings: ConsumerSettings, reactor: Any) -> ZooKeeperConnection | None:
    """Return a client that has not connected yet, or None if a broker coordinates the group.

    Raises ConfigError.
    """
    if settings.coordination != "zookeeper":
        return None
    # Only here, because other consumers need none of them.
    try:
        from plog.zookeeper.deferred_result import DeferredResult
        from plog.zookeeper.kazoo_client import KazooZooKeeper
        from plog.zookeeper.tls_settings import security_of
    except ImportError as error:
        raise ConfigError(
            [
                f"coordination=zookeeper requires the Python package kazoo ({error}): run apt"
                " install python3-kazoo, or pip install kazoo"
            ]
        ) from error
    is_tls = settings.zookeeper_ssl_client_enable
    client: ZooKeeperConnection = KazooZooKeeper(
        (settings.zookeeper_connect or "").replace(" ", ""),
        reactor=reactor,
        session_timeout_ms=settings.zookeeper_session_timeout_ms,
        pending=DeferredResult,
        security=security_of(tls_properties(settings)) if is_tls else None,
    )
    return client
