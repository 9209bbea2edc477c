"""The settings of clients, as the rest of the library imports them. Re-exports only.

    settings = ProducerSettings.from_options({"bootstrap.servers": "localhost:9092"}, linger_ms=20)
    settings.batch_size  # 131072

docs/client-configuration.md has them all; docs.py prints it.
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
