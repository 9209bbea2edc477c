"""The broker's settings: their declarations, how they are loaded, and how they are described.

Each setting is one field in a file named ``*_settings.py``, with its type, default, bounds and
text. Topic settings are in plogd/topic_config.py, client settings are in `plog.client.settings`,
and the code that uses a setting is in other packages. Start with broker_config.py, then read
config_loader.py.
"""

from plog.settings import ConfigError, SettingType
from plogd.config.broker_config import BrokerConfig, DynamicSettings, cross_check
from plogd.config.config_entry import ConfigEntry, ConfigSynonym
from plogd.config.config_loader import LoadedConfig, Origin, Reload, load_config, reloadable
from plogd.config.general_settings import DEFAULT_DATA_DIR
from plogd.config.listener import Listener

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
