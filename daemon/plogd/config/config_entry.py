"""`ConfigEntry`: a setting as DescribeConfigs shows it, with its value and its sources.

`BrokerConfig` and `TopicConfig` create the entries.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.enums import ConfigSource
from plog.settings import SettingType


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A value and its source; `ConfigEntry.synonyms` lists them, highest precedence first."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A setting as DescribeConfigs shows it; `value` is None for null and for secrets."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: SettingType
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]
