"""The copying path, over Twisted's test transport and over real TLS."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import ISSLTransport
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure

from plogd.connection_context import ConnectionContext
from plogd.log.segment.file_records import FileRegion
from plogd.net.tls.protocol_connection import ProtocolConnection
from plogd.net.transport import can_send_files
from tests.helpers.net_parts import (
    FETCH,
    METADATA,
    PRODUCE,
    ScriptedDispatch,
    WatchedFile,
    frame,
    make_connections,
    make_context,
    response,
)
from tests.helpers.sim.sim_ports import SimPorts


class Harness:
    """A broker with manually created connections."""

    def __init__(self, **settings: Any) -> None:
        self.ports = SimPorts()
        self.dispatch = ScriptedDispatch()
        self.dispatch.hold = lambda api_key, text: text.startswith("slow")
        self.shared = make_connections(self.dispatch, self.ports, **settings)

    def make_protocol(self) -> ProtocolConnection:
        def context_of(transport: Any) -> ConnectionContext:
            return make_context()

        return ProtocolConnection(self.shared, context_of)

    def connect(self) -> tuple[ProtocolConnection, StringTransport]:
        protocol, transport = self.make_protocol(), StringTransport()
        protocol.makeConnection(transport)
        return protocol, transport


def test_requests_in_pieces_are_answered_in_order() -> None:
    harness = Harness()
    protocol, transport = harness.connect()
    texts = ["a", "b" * 100_000, "c", "d" * 1_500_000, "e"]
    stream = b"".join(frame(METADATA, text) for text in texts)
    harness.dispatch.answer = lambda api_key, text: [response(text[:1])]
    for start in range(0, len(stream), 60_000):
        protocol.dataReceived(stream[start : start + 60_000])
    assert transport.value() == b"".join(response(text[:1]) for text in texts)
    assert harness.shared.memory.used_bytes == 0
    assert harness.shared.bytes_in == len(stream)


def test_bytes_that_may_not_be_read_yet_are_kept() -> None:
    """A paused transport may still deliver bytes that it has decrypted."""
    harness = Harness()
    protocol, transport = harness.connect()
    protocol.dataReceived(frame(FETCH, "slow"))
    for number in range(10):
        protocol.dataReceived(frame(METADATA, f"{number}" * 15_000))
    assert transport.producerState == "paused"
    harness.dispatch.release("slow")
    harness.ports.settle()
    assert transport.producerState == "producing"
    assert harness.dispatch.started == ["slow", *(f"{n}" * 15_000 for n in range(10))]


def test_lost_connection_leaves_nothing_behind(tmp_path: Path) -> None:
    harness = Harness()
    file = WatchedFile(tmp_path / "0.log", b"x" * 1000)
    protocol, transport = harness.connect()
    protocol.dataReceived(frame(FETCH, "slow") + frame(METADATA, "behind"))
    assert transport.producer is not None
    transport.producer.pauseProducing()
    harness.dispatch.waiting["slow"].succeed([FileRegion(file, 0, 1000)])
    assert file.holders == 2
    protocol.connectionLost(Failure(ConnectionDone()))
    harness.ports.settle()
    assert file.holders == 1
    assert len(harness.shared) == 0
    assert harness.dispatch.started == ["slow", "behind"], "as on a plain port"
    protocol.dataReceived(frame(METADATA, "late"))
    assert harness.dispatch.started == ["slow", "behind"]


def test_requests_received_before_the_end_still_start() -> None:
    """A producer with acks=0 may disconnect; its last bytes arrive together with the disconnect."""
    harness = Harness(plog_request_turn_max_requests=3)
    protocol, _ = harness.connect()
    texts = [f"{number}" * 5000 for number in range(10)]
    protocol.dataReceived(b"".join(frame(METADATA, text) for text in texts))
    protocol.connectionLost(Failure(ConnectionDone()))
    harness.ports.settle()
    assert harness.dispatch.started == texts
    assert len(harness.shared) == 0


def test_pending_request_is_cancelled_with_the_connection() -> None:
    harness = Harness()
    protocol, _ = harness.connect()
    protocol.dataReceived(frame(FETCH, "slow"))
    for number in range(10):
        protocol.dataReceived(frame(METADATA, f"{number}" * 15_000))
    protocol.connectionLost(Failure(ConnectionDone()))
    harness.ports.settle()
    assert len(harness.shared) == 0
    assert harness.dispatch.started == ["slow"]


def test_blocked_request_is_dropped_with_the_connection() -> None:
    harness = Harness(plog_response_buffer_max_bytes=64 * 1024)
    harness.dispatch.answer = lambda api_key, text: [b"x" * 70_000]
    protocol, transport = harness.connect()
    assert transport.producer is not None
    transport.producer.pauseProducing()
    protocol.dataReceived(frame(METADATA, "a") + frame(METADATA, "b"))
    assert harness.dispatch.started == ["a"]
    assert harness.shared.responses.used_bytes == 70_000
    protocol.connectionLost(Failure(ConnectionDone()))
    assert harness.shared.responses.used_bytes == 0
    harness.ports.settle()
    assert harness.dispatch.started == ["a", "b"]
    assert len(harness.shared) == 0


def test_small_parts_of_responses_are_joined_in_one_write(tmp_path: Path) -> None:
    harness = Harness()
    file = WatchedFile(tmp_path / "0.log", b"x" * 1000)
    harness.dispatch.answer = lambda api_key, text: [
        b"head", FileRegion(file, 0, 1000), b"tail",
    ]  # fmt: skip
    file.retain()
    protocol, transport = harness.connect()
    writes: list[bytes] = []
    transport.write = writes.append  # type: ignore[method-assign]
    protocol.dataReceived(frame(FETCH, "a") + frame(FETCH, "b"))
    assert writes == [(b"head" + b"x" * 1000 + b"tail") * 2]
    assert harness.shared.bytes_out == len(writes[0])


def test_invalid_size_closes_the_transport() -> None:
    harness = Harness()
    protocol, transport = harness.connect()
    protocol.dataReceived(b"\xff\xff\xff\xff")
    assert transport.disconnecting


# Twisted creates its certificates with functions that pyOpenSSL has deprecated.
quietly = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@quietly
def test_tls_transport_is_recognized_by_its_interfaces() -> None:
    """It has a fileno() like any other transport, so no other property distinguishes it."""
    harness = Harness()
    tls, _ = tls_pair(harness, Clock())
    assert ISSLTransport.providedBy(tls)
    assert not can_send_files(tls)
    assert not can_send_files(StringTransport())


@quietly
def test_responses_and_files_pass_through_tls(tmp_path: Path) -> None:
    harness = Harness(plog_response_buffer_max_bytes=1 << 20)
    file = WatchedFile(tmp_path / "0.log", os.urandom(300_000))
    harness.dispatch.answer = lambda api_key, text: (
        [b"head", FileRegion(file, 0, 300_000), b"tail"] if api_key == FETCH else [response(text)]
    )
    clock = Clock()
    server, client = tls_pair(harness, clock)
    received = bytearray()
    client.wrappedProtocol.dataReceived = received.extend
    pump(clock, server, client)
    assert client.transport is not None
    client.write(frame(METADATA, "x" * 200_000) + frame(FETCH, "all") + frame(METADATA, "end"))
    pump(clock, server, client)
    assert bytes(received) == (
        response("x" * 200_000) + b"head" + file.content + b"tail" + response("end")
    )
    assert file.holders == 1


def tls_pair(harness: Harness, clock: Clock) -> tuple[TLSMemoryBIOProtocol, TLSMemoryBIOProtocol]:
    """Return both ends of a TLS connection over two transports that record writes."""
    ssl = pytest.importorskip("twisted.internet.ssl")
    identity = ssl.KeyPair.generate(size=2048).selfSignedCert(1, CN="broker.test")
    # Newer versions of Twisted take the clock here; otherwise they use the global reactor.
    has_clock = "clock" in inspect.signature(TLSMemoryBIOFactory.__init__).parameters
    more: dict[str, Any] = {"clock": clock} if has_clock else {}
    server = TLSMemoryBIOFactory(identity.options(), False, BrokerFactory(harness), **more)
    client = TLSMemoryBIOFactory(
        ssl.CertificateOptions(), True, Factory.forProtocol(Protocol), **more
    )
    ends = []
    for factory in (server, client):
        end: Any = factory.buildProtocol(None)
        end.makeConnection(StringTransport())
        ends.append(end)
    return ends[0], ends[1]


class BrokerFactory(Factory):
    """The factory's methods as in listener_port.py."""

    noisy = False

    def __init__(self, harness: Harness) -> None:
        self._harness = harness

    def buildProtocol(self, addr: Any) -> ProtocolConnection:
        return self._harness.make_protocol()


def pump(clock: Clock, *ends: TLSMemoryBIOProtocol) -> None:
    """Transfer bytes in both directions until none are left."""
    moved = True
    while moved:
        moved = False
        clock.advance(0)  # Small writes are buffered until the next reactor iteration.
        for end, other in (ends, ends[::-1]):
            transport: Any = end.transport
            data = transport.value()
            if data:
                transport.clear()
                other.dataReceived(data)
                moved = True


def test_throttled_connection_is_muted_on_the_copying_path() -> None:
    harness = Harness()
    protocol, transport = harness.connect()

    def on_start(text: str) -> None:
        harness.dispatch.contexts[-1].mute_ms = 10_000 if text == "over" else 0

    harness.dispatch.on_start = on_start
    protocol.dataReceived(frame(PRODUCE, "over") + frame(METADATA, "a"))
    for number in range(10):
        protocol.dataReceived(frame(METADATA, f"{number}" * 15_000))
    assert transport.value() == response("over")
    assert transport.producerState == "paused"
    harness.ports.advance(9_999)
    assert transport.value() == response("over")
    harness.ports.advance(1)
    texts = ["over", "a", *(f"{number}" * 15_000 for number in range(10))]
    assert transport.value() == b"".join(map(response, texts))
    assert transport.producerState == "producing"
