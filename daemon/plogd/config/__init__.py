"""The broker's settings: their table, reading them, describing them. Re-exports only."""

from plog.settings import ConfigError, SettingType
from plogd.config.broker_config import BrokerConfig, DynamicSettings, cross_check
from plogd.config.config_entry import ConfigEntry, ConfigSynonym
from plogd.config.general_settings import DEFAULT_DATA_DIR
from plogd.config.listener import Listener
from plogd.config.config_loader import LoadedConfig, Origin, Reload, load_config, reloadable

__all__ = [
    "DEFAULT_DATA_DIR",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigError",
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
