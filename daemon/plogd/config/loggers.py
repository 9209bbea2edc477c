"""The broker's loggers as clients see them (KIP-412): one, called root, with a level.

Its level is not kept: it counts until the broker ends, or until ``plog.log.level`` changes. Levels
have log4j's names. Source: Kafka 4.3 RuntimeLoggerManager.
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
_LEVEL_BY_NAME: Final = {
    "DEBUG": "debug",
    "ERROR": "error",
    "FATAL": "critical",
    "INFO": "info",
    "WARN": "warn",
}
_NAME_BY_LEVEL: Final = {level: name for name, level in _LEVEL_BY_NAME.items()}


class Logs(Protocol):
    """Who writes the log."""

    @property
    def level(self) -> str:
        """The least important events that are written, a value of ``plog.log.level``."""
        ...

    def set_level(self, level: str) -> None:
        """Write events of at least this level from now on."""
        ...


def describe_loggers(logs: Logs | None) -> list[ConfigEntry]:
    """The loggers as DescribeConfigs shows them; none where another program writes the log."""
    if logs is None:
        return []
    entry = ConfigEntry(
        name=ROOT,
        value=_NAME_BY_LEVEL[logs.level],
        source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        read_only=False,
        sensitive=False,
        type=SettingType.STRING,
        documentation="The least important events that are logged.",
        synonyms=(),
    )
    return [entry]


def alter_loggers(
    logs: Logs | None, alterations: Sequence[Alteration], *, validate_only: bool
) -> None:
    """Change levels. Raises InvalidConfig for a logger or level there is not, InvalidRequest."""
    for one in alterations:
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
        raise InvalidConfig(f"Logger {one.name} does not exist! twistd itself writes the log here")
    if one.name != ROOT:
        raise InvalidConfig(
            f"Logger {one.name} does not exist! There is one, {ROOT}, for everything"
        )
    if one.operation == AlterOperation.DELETE:
        raise InvalidRequest("Removing the log level of the root logger is not allowed")
    if one.value not in _LEVEL_BY_NAME:
        raise InvalidConfig(
            f"Cannot set the log level of {one.name} to {one.value} as it is not a supported log "
            f"level. Valid log levels are {', '.join(_LEVEL_BY_NAME)}"
        )
