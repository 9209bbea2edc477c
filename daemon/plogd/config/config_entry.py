"""One setting as DescribeConfigs shows it: its value, and where that comes from.

Values only; the tables they are made from are `BrokerConfig` and `TopicConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.enums import ConfigSource
from plog.settings import SettingType


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
