"""TLS over real sockets with its own reactor: accepted clients, their principals, logged failures.

The clients are Python's `ssl` over memory, so that both ends run in one thread.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plogd.config import load_config
from plogd.connection_context import ANONYMOUS
from plogd.log.segment.file_records import FileRegion
from plogd.net.listeners import Listeners
from plogd.net.tls.tls_port import TlsTransport
from plogd.net.tls.tls_reload import TlsServers, prepare_tls
from plogd.net.transport import ServerTransport
from tests.helpers.certificates import DAY, Authority
from tests.helpers.net_parts import (
    FETCH,
    METADATA,
    LogLines,
    Pump,
    ScriptedDispatch,
    WatchedFile,
    frame,
    make_connections,
    open_all,
    response,
)
from tests.helpers.sim.sim_ports import SimPorts

CA = Authority()
BROKER = CA.server()


class Client:
    """A TLS client whose bytes the test transfers."""

    def __init__(self, pump: Pump, ports: SimPorts, port: int, identity: Path | None) -> None:
        context = ssl.create_default_context(cadata=CA.pem.decode())
        if identity is not None:
            context.load_cert_chain(identity)
        self._pump, self._ports = pump, ports
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.wire = bytearray()
        self.is_closed = False

    def carry(self) -> None:
        """Transfer the bytes that either end has for the other."""
        if data := self._outgoing.read():
            self.socket.sendall(data)
        self._pump.turn(self._ports)
        try:
            received = self.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionResetError:
            received = b""
        self.is_closed = not received
        self.wire += received
        self._incoming.write(received)

    def attempt(self, step: Any) -> Any:
        """Repeat `step` until it succeeds."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                assert not self.is_closed, "the broker has closed"
                self.carry()

    def handshake(self) -> None:
        self.attempt(self.tls.do_handshake)
        self.carry()

    def exchange(self, request: bytes, nbytes: int) -> bytes:
        self.tls.write(request)
        answer = bytearray()
        while len(answer) < nbytes:
            answer += self.attempt(partial(self.tls.read, nbytes - len(answer)))
        return bytes(answer)

    def until_closed(self) -> None:
        self._pump.until(lambda: self.is_closed or self.carry() or self.is_closed, self._ports)


class Harness:
    """One TLS listener."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.pump, self.ports = Pump(), SimPorts()
        self.dispatch = ScriptedDispatch()
        own = {name.replace("_", "."): value for name, value in settings.items()}
        keystore = BROKER.keystore(directory / "broker.pem")
        values = {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.location": str(CA.truststore(directory / "ca.pem")),
            **own,
        }
        self.config = load_config([], [f"{k}={v}" for k, v in values.items()]).config
        self.shared = make_connections(self.dispatch, self.ports)
        self.shared.settings = self.config
        self.tls = TlsServers(self.prepare())
        self.listeners = Listeners(self.pump.reactor, self.shared, self.tls.by_listener)
        [self.bound] = open_all(self.listeners, self.config.bound_listeners())
        self.clients: list[Client] = []

    def prepare(self) -> Any:
        return prepare_tls(self.config, SimPorts().clock.now_ms())

    def connect(self, identity: Path | None = None) -> Client:
        self.clients.append(Client(self.pump, self.ports, self.bound.port, identity))
        return self.clients[-1]

    def handshake(self, identity: Path | None = None) -> Client:
        client = self.connect(identity)
        client.handshake()
        return client

    def refused(self, identity: Path | None = None) -> None:
        """Try to connect; the broker must close the connection."""
        client = self.connect(identity)
        try:
            client.handshake()
        except (ssl.SSLError, AssertionError):
            pass
        client.until_closed()
        self.pump.until(lambda: not len(self.shared), self.ports)

    def close(self) -> None:
        for client in self.clients:
            client.socket.close()
        closed: list[Any] = []
        self.listeners.close().addBoth(closed.append)
        self.shared.abort_all()
        self.pump.until(lambda: closed and not len(self.shared), self.ports)
        self.pump.close()


@pytest.fixture
def make_harness(tmp_path: Path) -> Iterator[Any]:
    harnesses: list[Harness] = []

    def make(**settings: str) -> Harness:
        harnesses.append(Harness(tmp_path, **settings))
        return harnesses[-1]

    yield make
    for harness in harnesses:
        harness.close()


def test_request_is_answered(make_harness: Any) -> None:
    harness = make_harness()
    client = harness.handshake()
    assert client.exchange(frame(METADATA, "hello"), 9) == response("hello")
    [context] = harness.dispatch.contexts
    assert (context.listener_name, context.security_protocol) == ("SSL", "SSL")
    assert context.principal == ANONYMOUS


def test_file_regions_are_encrypted(
    make_harness: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TLS transport has a fileno() like any other, but sendfile must not use it."""

    def forbidden(*_: Any) -> int:
        raise AssertionError("bytes bypassed TLS")

    monkeypatch.setattr(os, "sendfile", forbidden)
    monkeypatch.setattr(ServerTransport, "serve", forbidden)
    harness = make_harness()
    marker = b"nobody may read this on the wire"
    file = WatchedFile(tmp_path / "0.log", marker * 30_000)
    size = len(file.content)
    harness.dispatch.answer = lambda api_key, text: [b"head", FileRegion(file, 0, size), b"tail"]
    client = harness.handshake()
    answer = client.exchange(frame(FETCH, "all"), size + 8)
    assert answer == b"head" + file.content + b"tail"
    assert len(client.wire) > size
    assert marker not in client.wire
    assert file.holders == 1


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_principal_is_the_subject_of_the_client_certificate(
    make_harness: Any, tmp_path: Path, client_auth: str
) -> None:
    harness = make_harness(ssl_client_auth=client_auth)
    client = harness.handshake(CA.client("analyst").keystore(tmp_path / "c.pem"))
    client.exchange(frame(METADATA, "x"), 5)
    assert harness.dispatch.contexts[0].principal == "User:CN=analyst,O=Plog\\, Inc"


def test_requested_client_certificate_is_optional(make_harness: Any) -> None:
    harness = make_harness(ssl_client_auth="requested")
    harness.handshake().exchange(frame(METADATA, "x"), 5)
    assert harness.dispatch.contexts[0].principal == ANONYMOUS


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_untrusted_client_certificate_is_rejected_and_logged_once(
    make_harness: Any, tmp_path: Path, client_auth: str, log_lines: LogLines
) -> None:
    harness = make_harness(ssl_client_auth=client_auth)
    stranger = Authority("Another CA").client("mallory").keystore(tmp_path / "c.pem")
    for _ in range(3):
        harness.refused(stranger)
    [line] = log_lines
    assert line.startswith("127.0.0.1: TLS handshake with listener SSL failed: the client cert")
    assert "CN=mallory" in line
    assert "ssl.truststore.location" in line
    assert harness.dispatch.started == []


def test_expired_client_certificate_is_rejected_and_logged_once(
    make_harness: Any, tmp_path: Path, log_lines: LogLines
) -> None:
    harness = make_harness(ssl_client_auth="required")
    late = CA.client("late", begins_in=-3 * DAY, ends_in=-DAY)
    harness.refused(late.keystore(tmp_path / "c.pem"))
    [line] = log_lines
    assert "CN=late,O=Plog\\, Inc has expired" in line


def test_missing_client_certificate_is_rejected_and_logged_once(
    make_harness: Any, log_lines: LogLines
) -> None:
    harness = make_harness(ssl_client_auth="required")
    harness.refused()
    [line] = log_lines
    assert "the client did not send a certificate" in line


def test_handshake_times_out(make_harness: Any, log_lines: LogLines) -> None:
    harness = make_harness(plog_partial_request_timeout_ms="2000")
    client = harness.connect()
    harness.pump.until(lambda: len(harness.shared) == 1, harness.ports)
    harness.ports.advance(1999)
    assert len(harness.shared) == 1
    harness.ports.advance(1)
    client.until_closed()
    [line] = log_lines
    assert "did not complete its TLS handshake within 2 s" in line


def held_handshakes(harness: Any, monkeypatch: pytest.MonkeyPatch) -> list[TlsTransport]:
    """Keep handshakes out of the run queue, and return them as they are postponed."""
    add = harness.shared.run_queue.add
    held: list[TlsTransport] = []

    def add_others(connection: Any) -> None:
        if isinstance(connection, TlsTransport):
            held.append(connection)
        else:
            add(connection)

    monkeypatch.setattr(harness.shared.run_queue, "add", add_others)
    return held


def test_handshakes_wait_for_a_turn_while_many_connections_are_ready(
    make_harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make_harness()
    served = harness.handshake()
    waiting = harness.connect()
    queued = held_handshakes(harness, monkeypatch)
    harness.shared.run_queue.is_behind = True
    with pytest.raises(ssl.SSLWantReadError):
        waiting.tls.do_handshake()
    for _ in range(10):
        waiting.carry()
    assert not waiting.wire, "no response has been sent"
    assert served.exchange(frame(METADATA, "a"), len(response("a"))) == response("a")
    [postponed] = queued
    harness.shared.run_queue.is_behind = False
    postponed.take_turn()
    waiting.handshake()
    assert waiting.exchange(frame(METADATA, "b"), len(response("b"))) == response("b")


def test_client_that_leaves_before_the_turn_of_its_handshake_is_closed(
    make_harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make_harness()
    waiting = harness.connect()
    queued = held_handshakes(harness, monkeypatch)
    harness.shared.run_queue.is_behind = True
    waiting.socket.sendall(b"\x16\x03\x01")
    harness.pump.until(lambda: queued, harness.ports)
    waiting.socket.close()
    for _ in range(2):
        queued[0].take_turn()
    harness.pump.until(lambda: not len(harness.shared), harness.ports)
    queued[0].take_turn()


def test_connection_may_be_silent_after_its_handshake(make_harness: Any) -> None:
    harness = make_harness(plog_partial_request_timeout_ms="2000")
    client = harness.handshake()
    harness.ports.advance(60_000)
    assert client.exchange(frame(METADATA, "still here"), 14) == response("still here")


@pytest.mark.parametrize("data", [frame(18, "plain"), b"GET / HTTP/1.1\r\n\r\n", b"\0"])
def test_client_without_tls_is_closed_and_logged_once(
    make_harness: Any, data: bytes, log_lines: LogLines
) -> None:
    harness = make_harness()
    client = harness.connect()
    client.socket.sendall(data)
    client.until_closed()
    [line] = log_lines
    expected = "127.0.0.1: closed a connection to the TLS listener SSL: the client sent "
    assert line.startswith(expected)


def test_disconnect_before_the_handshake_is_not_logged(
    make_harness: Any, log_lines: LogLines
) -> None:
    """Load balancers check a port that way, every second."""
    harness = make_harness()
    client = harness.connect()
    harness.pump.until(lambda: len(harness.shared) == 1, harness.ports)
    client.socket.close()
    harness.pump.until(lambda: not len(harness.shared), harness.ports)
    harness.ports.advance(3_600_000)
    assert log_lines == []


def test_connection_limit_applies_before_the_handshake(make_harness: Any) -> None:
    harness = make_harness(max_connections_per_ip="1")
    harness.connect()
    harness.pump.until(lambda: len(harness.shared) == 1, harness.ports)
    harness.connect().until_closed()
    assert harness.shared.refused == 1


def test_new_connections_use_new_certificates(make_harness: Any, tmp_path: Path) -> None:
    harness = make_harness()
    old = harness.handshake()
    renewed = CA.server()
    renewed.keystore(tmp_path / "broker.pem")
    harness.tls.use(harness.prepare())
    new = harness.handshake()
    assert new.tls.getpeercert(True) != old.tls.getpeercert(True)
    for client in (old, new):
        assert client.exchange(frame(METADATA, "x"), 5) == response("x")


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls_version_can_be_selected(make_harness: Any, version: str) -> None:
    harness = make_harness(ssl_enabled_protocols=version)
    assert harness.handshake().tls.version() == version


def test_cipher_suites_can_be_selected(make_harness: Any) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    client = make_harness(ssl_cipher_suites=suite).handshake()
    name, version, _ = client.tls.cipher()
    assert (name, version) == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")
