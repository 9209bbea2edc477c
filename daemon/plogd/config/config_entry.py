"""One setting as DescribeConfigs shows it: its value, and where that comes from.

Values only; the tables they are made from are `BrokerConfig` and `TopicConfig`. Source numbers are
those of DescribeConfigs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from plog.settings import SettingType


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as DescribeConfigs numbers it."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """One of the places a value could come from, strongest first in `ConfigEntry.synonyms`."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting as DescribeConfigs shows it; `value` is None for null and for what is secret."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: SettingType
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]
