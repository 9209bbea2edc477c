"""The brokers of the tests of faults: those of the tests with clients, each test with its own."""

from tests.integration.conftest import (
    authority,
    ca_file,
    new_topic,
    own_broker,
    start_broker,
    tls_broker,
    tls_settings,
    topic,
)

__all__ = [
    "authority",
    "ca_file",
    "new_topic",
    "own_broker",
    "start_broker",
    "tls_broker",
    "tls_settings",
    "topic",
]
