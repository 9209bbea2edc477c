"""Clients of one broker process for tests that send each request explicitly."""

from __future__ import annotations

import socket

from plog.client.simple import SimpleClient
from plogd.testing.broker_process import BrokerProcess

_TIMEOUT_S = 60.0


def client_of(broker: BrokerProcess) -> SimpleClient:
    """Return a client of a running broker."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return SimpleClient(host, int(port), timeout_s=_TIMEOUT_S)


def connect(broker: BrokerProcess) -> socket.socket:
    """Return a plain socket that is connected to a running broker."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), _TIMEOUT_S)
