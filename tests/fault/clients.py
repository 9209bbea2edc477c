"""Small clients of one broker process, for tests that say each request themselves."""

from __future__ import annotations

import socket

from plog.client.simple import SimpleClient
from plogd.testing.broker_process import BrokerProcess

_TIMEOUT_S = 60.0


def client_of(broker: BrokerProcess) -> SimpleClient:
    """A connection to a broker that runs."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return SimpleClient(host, int(port), timeout_s=_TIMEOUT_S)


def connect(broker: BrokerProcess) -> socket.socket:
    """A bare connection to a broker that runs."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), _TIMEOUT_S)
