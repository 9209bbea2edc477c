"""Strangers at the HTTP port."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogLevel, capturedLogs, formatEvent

from plogd.http.wrong_port import GreetingFactory

PEER = IPv4Address("TCP", "192.0.2.7", 5000)


class Echo(Protocol):
    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


def connect(factory: GreetingFactory) -> tuple[Any, StringTransport]:
    protocol: Any = factory.buildProtocol(PEER)
    transport = StringTransport(peerAddress=PEER)
    protocol.makeConnection(transport)
    return protocol, transport


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\0\0\0\x23\0\x12\0\3", "a Kafka request: Kafka clients use an address of advertised"),
        (b"\x16\x03\x01", "a TLS handshake: there is no https here"),
    ],
)
def test_whoever_does_not_speak_http_is_told_of_once_a_minute(data: bytes, words: str) -> None:
    clock = Clock()
    factory = GreetingFactory(Factory.forProtocol(Echo), clock.seconds)
    with capturedLogs() as events:
        for _ in range(3):
            protocol, transport = connect(factory)
            protocol.dataReceived(data)
            assert transport.disconnecting
            assert transport.value() == b""
    [line] = [formatEvent(event) for event in events if event["log_level"] is LogLevel.warn]
    assert line.startswith(f"192.0.2.7: closed a connection to plog.http.port that sent {words}")


def test_everybody_else_gets_what_there_is() -> None:
    protocol, transport = connect(GreetingFactory(Factory.forProtocol(Echo), Clock().seconds))
    protocol.dataReceived(b"GET")
    protocol.dataReceived(b"\0 later bytes may be anything")
    assert transport.value() == b"GET\0 later bytes may be anything"
    assert not transport.disconnecting
