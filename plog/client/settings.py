"""The settings of clients, as the rest of the library imports them. Re-exports only.

    settings = ProducerSettings.from_options({"bootstrap.servers": "localhost:9092"}, linger_ms=20)
    settings.batch_size  # 131072

docs/client-configuration.md has them all; settings_docs.py prints it.
"""

from plog.client.client_settings import AdminSettings, ClientSettings, TokenSource
from plog.client.common_settings import Address
from plog.client.consumer_settings import ConsumerSettings, OffsetReset
from plog.client.producer_settings import ProducerSettings
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
