"""`ZooKeeperCoordinationSettings`: the settings of consumers whose group ZooKeeper coordinates.

Names and defaults are those of Kafka 0.8's consumer; the settings of TLS are Kafka 3.9's
(plog/zookeeper_settings.py). Source: Kafka 0.8.2 ConsumerConfig, ZKConfig.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from plog.settings import SECOND_MS, SettingType, setting
from plog.zookeeper_settings import ZooKeeperTlsSettings, check_zookeeper_tls, connect_problem

_MODE = "coordination=zookeeper"
_GROUP_ID = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_ONLY_FOR_BROKERS = {
    "group.instance.id": "there are no static members",
    "group.protocol": "brokers take no part in the group",
}
_REPLACED = {
    "session.timeout.ms": "set zookeeper.session.timeout.ms",
    "heartbeat.interval.ms": "ZooKeeper's client chooses the interval",
}


@dataclass(frozen=True, kw_only=True)
class _ConnectionSettings:
    """The settings of the connection to ZooKeeper, without TLS."""

    zookeeper_connect: str | None = setting(
        "zookeeper.connect",
        None,
        "Servers of the ZooKeeper ensemble, and the znode below which the brokers store their"
        " metadata: `HOST:PORT[,HOST:PORT...][/CHROOT]`, as on the brokers. Requires"
        " `coordination=zookeeper`, as do all settings of this section.",
        type=SettingType.STRING,
        importance="high",
        group="ZooKeeper",
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms",
        6 * SECOND_MS,
        "Time without a connection after which ZooKeeper removes this consumer from its group."
        " ZooKeeper limits it to 2 to 20 of its own ticks.",
        at_least=1,
        unit="ms",
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms",
        None,
        "Time for the first connection, after which a poll raises an error, and for each attempt"
        " of a commit (default: `zookeeper.session.timeout.ms`).",
        type=SettingType.INT,
        at_least=1,
        unit="ms",
    )


@dataclass(frozen=True, kw_only=True)
class ZooKeeperCoordinationSettings(ZooKeeperTlsSettings, _ConnectionSettings):
    """The part of `ConsumerSettings` for ZooKeeper."""

    @property
    def zookeeper_connection_limit_ms(self) -> int:
        """``zookeeper.connection.timeout.ms``, or its default."""
        return self.zookeeper_connection_timeout_ms or self.zookeeper_session_timeout_ms


def check_coordination(
    settings: ZooKeeperCoordinationSettings,
    *,
    is_used: bool,
    group_id: str | None,
    assignors: tuple[str, ...],
    explicit: frozenset[str],
) -> Iterator[tuple[str, str]]:
    """Yield conflicts between values, as (name of one of them, problem)."""
    if not is_used:
        for name in sorted(explicit):
            if name.startswith("zookeeper."):
                yield name, f"has no effect without {_MODE}"
        return
    if problem := connect_problem(settings.zookeeper_connect or "", _MODE):
        yield "zookeeper.connect", problem
    if group_id is None:
        yield "coordination", "zookeeper requires a group.id"
    # The name becomes a part of a path, and Kafka 0.8 has the same rule.
    elif group_id and (not _GROUP_ID.fullmatch(group_id) or group_id in (".", "..")):
        yield (
            "group.id",
            f"allowed with {_MODE}: letters, digits, dots, underscores and hyphens",
        )
    for name, why in _ONLY_FOR_BROKERS.items():
        if name in explicit:
            yield name, f"is not supported with {_MODE}: {why}; remove it"
    if "partition.assignment.strategy" in explicit and assignors != ("range",):
        yield "partition.assignment.strategy", f"only range is supported with {_MODE}"
    yield from check_zookeeper_tls(settings, explicit)


def doubtful_coordination(explicit: frozenset[str]) -> Iterator[str]:
    """Yield a warning for each setting that has no effect with ZooKeeper."""
    for name, advice in _REPLACED.items():
        if name in explicit:
            yield f"{name} has no effect with {_MODE}; {advice}"
