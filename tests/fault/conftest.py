"""Fixtures of the fault tests, from the integration tests; each test has its own broker."""

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
