"""Settings of the connection to ZooKeeper, with ``plog.metadata.store=zookeeper``.

`BrokerConfig` (broker_config.py) inherits them. Names, types, bounds and defaults are those of
Kafka 3.9 unless the text says otherwise. Keys and certificates must be PEM, as for listeners
(tls_settings.py). plog/zookeeper_settings.py contains those of TLS. Source: Kafka 3.9 ZkConfigs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plog.settings import SECOND_MS, SettingType, setting
from plog.zookeeper_settings import ZooKeeperTlsSettings, check_zookeeper_tls, connect_problem


@dataclass(frozen=True, kw_only=True)
class _ConnectionSettings:
    """The settings of the connection, without TLS."""

    zookeeper_connect: str | None = setting(
        "zookeeper.connect",
        None,
        "Servers of the ZooKeeper ensemble, and the znode below which this cluster stores its"
        " metadata: `HOST:PORT[,HOST:PORT...][/CHROOT]`. The default port is 2181. A missing chroot"
        " is created.",
        type=SettingType.STRING,
        importance="high",
        group="ZooKeeper",
    )
    broker_id_generation_enable: bool = setting(
        "broker.id.generation.enable",
        True,
        "Whether a broker without `node.id` gets an ID from ZooKeeper when it starts on new"
        " directories. It keeps this ID, which is in `meta.properties`.",
    )
    reserved_broker_max_id: int = setting(
        "reserved.broker.max.id",
        1000,
        "Highest `node.id` that can be set. IDs from ZooKeeper are higher.",
        at_least=0,
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms",
        18 * SECOND_MS,
        "Time without a connection after which ZooKeeper removes the registration of this broker."
        " ZooKeeper limits it to 2 to 20 of its own ticks.",
        at_least=1,
        unit="ms",
        importance="high",
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms",
        None,
        "Time after which a starting broker that cannot connect to ZooKeeper exits (default:"
        " `zookeeper.session.timeout.ms`). A running broker waits without a limit.",
        type=SettingType.INT,
        at_least=1,
        unit="ms",
        importance="high",
    )
    zookeeper_set_acl: bool = setting(
        "zookeeper.set.acl",
        False,
        "Whether to restrict access to the znodes. Only `false` is supported.",
        importance="high",
    )


@dataclass(frozen=True, kw_only=True)
class ZooKeeperSettings(ZooKeeperTlsSettings, _ConnectionSettings):
    """The part of `BrokerConfig` for ZooKeeper."""


def check_zookeeper(
    settings: ZooKeeperSettings, *, is_used: bool, explicit: frozenset[str], node_id: int
) -> Iterator[tuple[str, str]]:
    """Yield the problems with the settings as (setting, problem) pairs.

    `is_used` is whether ZooKeeper stores the metadata. The files are not read.
    """
    if not is_used:
        if node_id < 0:
            yield "node.id", "is only possible with plog.metadata.store=zookeeper; set an ID"
        if settings.zookeeper_connect:
            yield (
                "zookeeper.connect",
                "has no effect with plog.metadata.store=embedded; set plog.metadata.store=zookeeper"
                " to store the metadata in ZooKeeper, or remove zookeeper.connect",
            )
        return
    yield from _check_node_id(settings, node_id if "node.id" in explicit else -1)
    problem = connect_problem(settings.zookeeper_connect or "")
    if problem:
        yield "zookeeper.connect", problem
    if settings.zookeeper_set_acl:
        yield (
            "zookeeper.set.acl",
            "plog does not set ACLs on znodes; restrict access to ZooKeeper's port, and set it to"
            " false",
        )
    yield from check_zookeeper_tls(settings, explicit)


def _check_node_id(settings: ZooKeeperSettings, node_id: int) -> Iterator[tuple[str, str]]:
    if not settings.broker_id_generation_enable:
        if node_id < 0:
            yield "node.id", "must be set to an ID with broker.id.generation.enable=false"
    # As in Kafka. Otherwise, another broker could get this ID from ZooKeeper.
    elif node_id > settings.reserved_broker_max_id:
        yield (
            "node.id",
            f"is above reserved.broker.max.id ({settings.reserved_broker_max_id}); raise"
            " reserved.broker.max.id, or set broker.id.generation.enable=false",
        )
