"""The broker's settings: their table, reading them, describing them. Re-exports only."""

from plogd.config.broker_config import BrokerConfig, DynamicSettings, cross_check
from plogd.config.general_settings import DEFAULT_DATA_DIR
from plogd.config.listener import Listener
from plogd.config.loading import ConfigError, LoadedConfig, Origin, Reload, load_config, reloadable
from plogd.config.setting import ConfigEntry, ConfigSource, ConfigSynonym, SettingType

__all__ = [
    "DEFAULT_DATA_DIR",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigError",
    "ConfigSource",
    "ConfigSynonym",
    "DynamicSettings",
    "Listener",
    "LoadedConfig",
    "Origin",
    "Reload",
    "SettingType",
    "cross_check",
    "load_config",
    "reloadable",
]
