"""The broker's loggers, as clients can describe and alter them (KIP-412): a single root logger.

A level set by a client is not persisted: it applies until the broker stops or ``plog.log.level``
changes. Levels have log4j's names. Source: Kafka 4.3 RuntimeLoggerManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from plog.enums import AlterOperation, ConfigSource
from plog.errors import InvalidConfig, InvalidRequest
from plog.settings import SettingType
from plogd.config.alterations import Alteration
from plogd.config.config_entry import ConfigEntry

ROOT: Final = "root"
# TRACE is missing, because Twisted has no level below debug.
_LEVEL_BY_NAME: Final = {
    "DEBUG": "debug",
    "ERROR": "error",
    "FATAL": "critical",
    "INFO": "info",
    "WARN": "warn",
}
_NAME_BY_LEVEL: Final = {level: name for name, level in _LEVEL_BY_NAME.items()}


class Logs(Protocol):
    """The daemon's log, whose level can be changed."""

    @property
    def level(self) -> str:
        """Return the minimum level of logged events, a value of ``plog.log.level``."""
        ...

    def set_level(self, level: str) -> None:
        """Log events of this level and above from now on."""
        ...


def describe_loggers(logs: Logs | None) -> list[ConfigEntry]:
    """Return the loggers as DescribeConfigs shows them; none if twistd itself writes the log."""
    # With twistd's own options for logging, plog does not create the observer that has a level.
    if logs is None:
        return []
    entry = ConfigEntry(
        name=ROOT,
        value=_NAME_BY_LEVEL[logs.level],
        source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        read_only=False,
        sensitive=False,
        type=SettingType.STRING,
        documentation="Minimum level of logged events.",
        synonyms=(),
    )
    return [entry]


def alter_loggers(
    logs: Logs | None, alterations: Sequence[Alteration], *, validate_only: bool
) -> None:
    """Change the root logger's level.

    Raises:
        InvalidConfig: the logger or the level does not exist.
        InvalidRequest: the operation is not SET.
    """
    for one in alterations:
        # All are checked before the first is applied, so that an invalid one has no partial effect.
        _check(logs, one)
    if logs is None or validate_only:
        return
    for one in alterations:
        assert one.value is not None
        logs.set_level(_LEVEL_BY_NAME[one.value])


def _check(logs: Logs | None, one: Alteration) -> None:
    if one.operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
        raise InvalidRequest(
            f"{AlterOperation(one.operation).name} operation is not allowed for the BROKER_LOGGER "
            "resource"
        )
    if logs is None:
        raise InvalidConfig(
            f"Logger {one.name} does not exist! This broker's log is written by twistd"
        )
    if one.name != ROOT:
        raise InvalidConfig(f"Logger {one.name} does not exist! The only logger is {ROOT}")
    if one.operation == AlterOperation.DELETE:
        raise InvalidRequest("Removing the log level of the root logger is not allowed")
    if one.value not in _LEVEL_BY_NAME:
        raise InvalidConfig(
            f"Cannot set the log level of {one.name} to {one.value} as it is not a supported log "
            f"level. Valid log levels are {', '.join(_LEVEL_BY_NAME)}"
        )
