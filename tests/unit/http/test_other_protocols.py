"""Clients of other protocols on the HTTP port."""

from __future__ import annotations

import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent

from plogd.http.http_server import HttpFactory
from plogd.http.other_protocols import mistake_in
from tests.helpers.http_client import HttpClient
from tests.helpers.sim.sim_ports import SimPorts


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\0\0\0\x23\0\x12\0\3", "a Kafka request: connect Kafka clients to an address"),
        (b"\x16\x03\x01", "a TLS handshake: plog.http.port does not support HTTPS"),
    ],
)
def test_client_of_another_protocol_is_closed_with_one_line_a_minute(
    data: bytes, words: str
) -> None:
    factory = HttpFactory({}, SimPorts().timers, lambda: 0.0)
    with capturedLogs() as events:
        for _ in range(3):
            client = HttpClient(factory)
            client.send(data)
            assert client.transport.disconnecting
            assert client.read() == b""
    [line] = [formatEvent(event) for event in events if event["log_level"] is LogLevel.warn]
    assert line.startswith(f"192.0.2.7: closed a connection to plog.http.port that sent {words}")


def test_http_is_recognized() -> None:
    assert mistake_in(b"GET") is None
    assert mistake_in(b"") is None
