"""The settings of clients: one table for each kind of client, and the code that fills it.

    settings = ProducerSettings.from_options({"bootstrap.servers": "localhost:9092"}, linger_ms=20)
    settings.batch_size  # 131072

This package defines the names, types, defaults and bounds of settings, and the names that other
clients use for them. The code that uses a setting implements its effect. The broker's settings are
in `plogd.config`. Start with client.py; docs/client-configuration.md, which docs.py generates,
lists every setting.
"""

from plog.client.settings.client import AdminSettings, ClientSettings, TokenSource
from plog.client.settings.common import Address
from plog.client.settings.consumer import ConsumerSettings, OffsetReset
from plog.client.settings.producer import ProducerSettings
from plog.settings import ConfigError

__all__ = [
    "Address",
    "AdminSettings",
    "ClientSettings",
    "ConfigError",
    "ConsumerSettings",
    "OffsetReset",
    "ProducerSettings",
    "TokenSource",
]
