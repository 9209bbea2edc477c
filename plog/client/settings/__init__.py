"""The settings of clients: one table for each kind of client, and how it is filled.

    settings = ProducerSettings.from_options({"bootstrap.servers": "localhost:9092"}, linger_ms=20)
    settings.batch_size  # 131072

Names, types, defaults and bounds of settings belong here, and so do the names that other clients
use for them. What a setting does is implemented where it is used, and the settings of the broker
are in `plogd.config`. Start with client.py; docs/client-configuration.md, which docs.py generates,
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
