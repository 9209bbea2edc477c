"""Real sockets on loopback, with a reactor that runs only while a test waits."""

from __future__ import annotations

import os
import select
import socket
import struct
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.interfaces import ISSLTransport
from zope.interface import alsoProvides

from plogd.config.listener import Listener
from plogd.log.segment.file_records import FileRegion
from plogd.net.listeners import Listeners
from plogd.net.transport import ServerTransport, can_send_files
from tests.helpers.client.collector import no_collector
from tests.helpers.net_parts import (
    FETCH,
    METADATA,
    PRODUCE,
    Pump,
    ScriptedDispatch,
    WatchedFile,
    frame,
    make_connections,
    open_all,
    response,
)
from tests.helpers.sim.sim_ports import SimPorts

MIB = 1 << 20


class Broker:
    """An open port with a scripted dispatch."""

    def __init__(self, pump: Pump, **settings: Any) -> None:
        self.pump = pump
        self.dispatch = ScriptedDispatch()
        self.dispatch.hold = lambda api_key, text: text.startswith("slow")
        self.ports = SimPorts()
        self.shared = make_connections(self.dispatch, self.ports, **settings)
        self.listeners = Listeners(pump.reactor, self.shared)
        [self.bound] = open_all(
            self.listeners,
            [Listener(name="PLAINTEXT", host="127.0.0.1", port=0, protocol="PLAINTEXT")],
        )
        self.clients: list[socket.socket] = []

    def connect(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.bound.port))
        self.clients.append(client)
        before = self.shared.accepted
        self.until(lambda: self.shared.accepted > before)
        return client

    def until(self, condition: Any) -> None:
        self.pump.until(condition, self.ports)

    def exchange(self, client: socket.socket, expected: bytes) -> None:
        assert self.pump.exchange(client, len(expected), self.ports) == expected

    def end_of_stream(self, client: socket.socket) -> None:
        self.pump.end_of_stream(client, self.ports)

    @property
    def transports(self) -> list[ServerTransport]:
        """Return the transports in order of acceptance; the reactor may not watch them all."""
        wires = [connection._wire for connection in self.shared._open]
        return [wire for wire in wires if isinstance(wire, ServerTransport)]

    def send_slowly(self, client: socket.socket, data: bytes) -> None:
        """Send more than the kernel's buffers hold, while the reactor runs."""
        client.setblocking(False)
        view = memoryview(data)

        def step() -> bool:
            nonlocal view
            while view and select.select([], [client], [], 0)[1]:
                view = view[client.send(view[:100_000]) :]
            return not view

        self.until(step)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.listeners.close()
        self.shared.abort_all()
        self.until(lambda: not len(self.shared))
        self.listeners.release()


@pytest.fixture
def pump() -> Iterator[Pump]:
    pump = Pump()
    yield pump
    pump.close()


@pytest.fixture
def make_broker(pump: Pump) -> Iterator[Any]:
    brokers: list[Broker] = []

    def make(**settings: Any) -> Broker:
        brokers.append(Broker(pump, **settings))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.close()


@pytest.fixture
def file(tmp_path: Path) -> WatchedFile:
    return WatchedFile(tmp_path / "0.log", os.urandom(4 * MIB))


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_pipelined_requests_are_answered_in_order(make_broker: Any) -> None:
    broker = make_broker()
    client = broker.connect()
    texts = [f"request {n}" for n in range(500)]
    client.sendall(b"".join(frame(METADATA, text) for text in texts))
    broker.exchange(client, b"".join(response(text) for text in texts))
    assert broker.shared.bytes_out == sum(len(response(text)) for text in texts)


def test_request_may_arrive_byte_by_byte(make_broker: Any) -> None:
    broker = make_broker()
    client = broker.connect()
    for byte in frame(METADATA, "hello"):
        client.sendall(bytes([byte]))
        broker.pump.turn(broker.ports)
    broker.exchange(client, response("hello"))


def test_large_requests_between_small_ones_arrive_completely(make_broker: Any) -> None:
    broker = make_broker()
    client = broker.connect()
    texts = ["a", "b" * 70_000, "c", "d" * 300_000, "e", "f" * 3 * MIB, "g"]
    broker.dispatch.answer = lambda api_key, text: [response(text[:1] + str(len(text)))]
    broker.send_slowly(client, b"".join(frame(PRODUCE, text) for text in texts))
    broker.exchange(client, b"".join(response(text[:1] + str(len(text))) for text in texts))
    assert broker.shared.memory.used_bytes == 0


def test_responses_completed_later_are_sent_in_order(make_broker: Any) -> None:
    broker = make_broker()
    client = broker.connect()
    client.sendall(frame(PRODUCE, "slow 1") + frame(PRODUCE, "slow 2") + frame(FETCH, "fetch"))
    broker.until(lambda: len(broker.dispatch.started) == 2)
    broker.dispatch.release("slow 2")
    broker.dispatch.release("slow 1")
    broker.exchange(client, response("slow 1") + response("slow 2") + response("fetch"))


def test_responses_of_one_turn_are_sent_together(make_broker: Any) -> None:
    broker = make_broker()
    client = broker.connect()
    client.sendall(b"".join(frame(PRODUCE, f"slow {n}") for n in range(20)))
    broker.until(lambda: len(broker.dispatch.started) == 20)
    [transport] = broker.transports
    flushes: list[int] = []
    flush = transport._output.flush

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(output, name)

        def flush(self, sock: socket.socket) -> Any:
            flushes.append(len(output))
            return flush(sock)

    output, transport._output = transport._output, Watched()
    with broker.ports.turn:
        for n in range(20):
            broker.dispatch.release(f"slow {n}")
    assert flushes == [20]
    broker.exchange(client, b"".join(response(f"slow {n}") for n in range(20)))


def test_fetch_is_sent_from_the_file_to_the_socket(make_broker: Any, file: WatchedFile) -> None:
    broker = make_broker()
    client = broker.connect()
    broker.dispatch.answer = lambda api_key, text: (
        [b"head", FileRegion(file, 100, 3 * MIB), b"tail"] if api_key == FETCH else [response(text)]
    )
    client.sendall(frame(FETCH, "all") + frame(METADATA, "next"))
    content = file.content[100 : 100 + 3 * MIB]
    broker.exchange(client, b"head" + content + b"tail" + response("next"))
    assert file.reads == []
    assert file.holders == 1


def test_cold_fetch_waits_for_its_job_without_delaying_others(
    make_broker: Any, file: WatchedFile
) -> None:
    broker = make_broker()
    reader, other = broker.connect(), broker.connect()
    file.is_cached = False
    broker.dispatch.answer = lambda api_key, text: (
        [FileRegion(file, 0, 2 * MIB)] if api_key == FETCH else [response(text)]
    )
    reader.sendall(frame(FETCH, "cold"))
    broker.pump.until(lambda: broker.ports.jobs.waiting)
    other.sendall(frame(METADATA, "quick"))
    assert broker.pump.exchange(other, len(response("quick"))) == response("quick")
    assert not select.select([reader], [], [], 0)[0]
    broker.exchange(reader, file.content[: 2 * MIB])
    assert file.holders == 1


def test_broker_stops_reading_from_a_client_that_does_not_read(make_broker: Any) -> None:
    broker = make_broker(plog_response_buffer_max_bytes=64 * 1024)
    client = broker.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
    client.setblocking(False)
    broker.dispatch.answer = lambda api_key, text: [b"x" * 50_000]
    data = memoryview(frame(METADATA, "y" * 1000) * 3000)
    sent = 0

    def is_stuck() -> bool:
        nonlocal sent
        if not select.select([], [client], [], 0.02)[1]:
            return True
        sent += client.send(data[sent : sent + 50_000])
        return False

    broker.until(is_stuck)
    [transport] = broker.transports
    assert not transport._is_reading
    assert transport.buffered_bytes < 300_000
    started = len(broker.dispatch.started)
    for _ in range(20):
        broker.pump.turn(broker.ports)
    assert len(broker.dispatch.started) == started
    expected = sent // (len(data) // 3000) * 50_000
    assert len(broker.pump.exchange(client, expected, broker.ports)) == expected
    assert transport._is_reading


def test_unread_responses_are_counted_until_they_are_read(make_broker: Any) -> None:
    broker = make_broker()
    responses = broker.shared.responses
    client = broker.connect()
    text = "x" * (8 * MIB)
    broker.dispatch.answer = lambda _, __: [response(text)]
    client.sendall(frame(METADATA, "a"))
    broker.until(lambda: responses.used_bytes)
    assert responses.used_bytes == broker.transports[0].buffered_bytes
    broker.exchange(client, response(text))
    broker.until(lambda: not responses.used_bytes)


def test_lost_connection_cancels_its_waits_and_closes_its_files(
    make_broker: Any, file: WatchedFile
) -> None:
    broker = make_broker()
    before = open_descriptors()
    for _ in range(10):
        client = broker.connect()
        broker.dispatch.answer = lambda api_key, text: [b"head", FileRegion(file, 0, 3 * MIB)]
        client.sendall(frame(FETCH, "all") + frame(FETCH, "more"))
        broker.until(lambda: file.holders > 1)
        client.sendall(frame(PRODUCE, "slow"))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        broker.until(lambda: not len(broker.shared))
        assert file.holders == 1
    broker.clients.clear()
    assert open_descriptors() == before


def test_parked_request_is_cancelled_when_its_client_disconnects(make_broker: Any) -> None:
    broker = make_broker()
    client = broker.connect()
    client.sendall(frame(FETCH, "slow") + frame(METADATA, "behind"))
    broker.until(lambda: broker.dispatch.started)
    client.close()
    broker.until(lambda: not len(broker.shared))
    assert broker.dispatch.cancelled == ["slow"]


def test_sweep_detects_a_disconnect_behind_unread_bytes(make_broker: Any) -> None:
    broker = make_broker()
    client = broker.connect()
    client.sendall(frame(FETCH, "slow") + frame(METADATA, "x" * 1000) * 70)
    [transport] = broker.transports
    broker.until(lambda: not transport._is_reading)
    broker.shared.sweep()
    assert not broker.dispatch.cancelled
    client.sendall(b"not even looked at")
    client.close()
    # No event reports this: only the sweep can detect it.
    broker.until(lambda: transport.peer_has_left())
    broker.shared.sweep()
    broker.until(lambda: not len(broker.shared))
    assert broker.dispatch.cancelled == ["slow"]


def test_produces_sent_before_the_end_of_stream_are_appended(make_broker: Any) -> None:
    broker = make_broker()
    client = broker.connect()
    broker.dispatch.answer = lambda api_key, text: None
    client.sendall(b"".join(frame(PRODUCE, str(n)) for n in range(1000)))
    client.close()
    broker.until(lambda: not len(broker.shared))
    assert broker.dispatch.started == [str(n) for n in range(1000)]


def test_half_closed_client_receives_completed_responses(
    make_broker: Any,
) -> None:
    broker = make_broker()
    client = broker.connect()
    client.sendall(b"".join(frame(METADATA, str(n)) for n in range(200)))
    client.shutdown(socket.SHUT_WR)
    broker.exchange(client, b"".join(response(str(n)) for n in range(200)))
    broker.end_of_stream(client)


def test_response_is_sent_completely_before_the_connection_closes(
    make_broker: Any, file: WatchedFile
) -> None:
    broker = make_broker()
    client = broker.connect()
    broker.dispatch.answer = lambda api_key, text: [FileRegion(file, 0, 3 * MIB)]
    client.sendall(frame(FETCH, "all") + frame(METADATA, "nonsense"))
    broker.exchange(client, file.content[: 3 * MIB])
    broker.end_of_stream(client)
    assert file.holders == 1


def test_file_truncated_while_it_is_sent_closes_the_connection(
    make_broker: Any, file: WatchedFile, log_lines: list[str]
) -> None:
    broker = make_broker()
    client = broker.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
    broker.dispatch.answer = lambda api_key, text: [FileRegion(file, 0, 4 * MIB)]
    client.sendall(frame(FETCH, "all"))
    broker.until(lambda: broker.shared.bytes_out)
    file.truncate(10)
    broker.end_of_stream(client)
    broker.until(lambda: not len(broker.shared))
    assert file.holders == 1
    [line] = log_lines
    assert "cannot send to 127.0.0.1" in line
    assert "0.log ends at" in line


def test_http_client_is_closed_and_logged_once(make_broker: Any, log_lines: list[str]) -> None:
    broker = make_broker()
    client = broker.connect()
    client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    broker.end_of_stream(client)
    [line] = log_lines
    assert "HTTP" in line


def test_connection_is_not_read_without_memory_until_another_completes(make_broker: Any) -> None:
    broker = make_broker(queued_max_request_bytes=3 * MIB)
    first, second = broker.connect(), broker.connect()
    data = frame(PRODUCE, "x" * 2 * MIB)
    broker.dispatch.answer = lambda api_key, text: [response("ok")]
    first.sendall(data[:20_000])
    broker.until(lambda: broker.shared.memory.used_bytes)
    second.sendall(data[:20_000])
    broker.until(lambda: broker.shared.memory.waiting)
    second.sendall(data[20_000:30_000])
    assert [each._is_reading for each in broker.transports] == [True, False]
    broker.send_slowly(first, data[20_000:])
    broker.exchange(first, response("ok"))
    broker.send_slowly(second, data[30_000:])
    broker.exchange(second, response("ok"))
    assert broker.shared.memory.used_bytes == 0


def test_bytes_left_in_user_space_are_handled_without_an_event(make_broker: Any) -> None:
    broker = make_broker(plog_request_turn_max_requests=2)
    client = broker.connect()
    client.sendall(frame(METADATA, "a") * 31)
    broker.exchange(client, response("a") * 31)


def test_event_after_reading_was_paused_is_ignored(
    make_broker: Any,
) -> None:
    broker = make_broker()
    client = broker.connect()
    client.sendall(frame(FETCH, "slow") + frame(METADATA, "x" * 1000) * 70)
    [transport] = broker.transports
    broker.until(lambda: not transport._is_reading)
    assert transport.doRead() is None
    broker.dispatch.release("slow")
    broker.exchange(client, response("slow") + response("x" * 1000) * 70)


def test_event_without_bytes_is_ignored(make_broker: Any) -> None:
    broker = make_broker()
    client = broker.connect()
    [transport] = broker.transports
    assert transport.doRead() is None
    assert not transport.peer_has_left()
    client.sendall(frame(METADATA, "hello"))
    broker.exchange(client, response("hello"))


def test_connection_reset_closes_the_connection(make_broker: Any) -> None:
    broker = make_broker()
    client = broker.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    broker.until(lambda: not len(broker.shared))


def test_response_to_an_aborted_connection_is_discarded(
    make_broker: Any, file: WatchedFile
) -> None:
    broker = make_broker()
    client = broker.connect()
    [transport] = broker.transports
    transport.write_answer([FileRegion(file, 0, 100)])
    transport.abort()
    broker.end_of_stream(client)
    broker.until(lambda: not len(broker.shared))
    assert file.holders == 1
    assert file.reads == []


def test_bytes_written_directly_are_queued(make_broker: Any, file: WatchedFile) -> None:
    broker = make_broker()
    client = broker.connect()
    [transport] = broker.transports
    transport.write_answer([FileRegion(file, 0, 3 * MIB)])
    transport.write(b"late")
    transport.writeSequence([b"r", b"!"])
    broker.exchange(client, file.content[: 3 * MIB] + b"later!")


def test_plain_transport_refuses_to_start_tls(make_broker: Any) -> None:
    broker = make_broker()
    broker.connect()
    [transport] = broker.transports
    with pytest.raises(RuntimeError, match="TLS"):
        transport.startTLS(None)


def test_only_plain_transports_send_files(make_broker: Any) -> None:
    broker = make_broker()
    broker.connect()
    [transport] = broker.transports
    assert can_send_files(transport)
    alsoProvides(transport, ISSLTransport)
    assert not can_send_files(transport), "a file descriptor alone proves nothing"


def test_small_responses_are_sent_without_delay(make_broker: Any) -> None:
    broker = make_broker()
    broker.connect()
    [transport] = broker.transports
    assert transport.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert transport.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_time_of_closing_a_connection_counts_in_its_pass(make_broker: Any) -> None:
    broker = make_broker()
    spent: list[float] = []
    broker.shared.run_queue.spent = spent.append
    broker.connect().close()
    broker.until(lambda: not len(broker.shared))
    assert len(spent) == 2, "at the end of the stream, and when the connection was lost"


def test_lost_connection_is_freed_without_the_garbage_collector(make_broker: Any) -> None:
    broker = make_broker()
    with no_collector():
        client = broker.connect()
        client.sendall(frame(METADATA, "a"))
        broker.exchange(client, response("a"))
        [transport] = broker.transports
        gone = weakref.ref(transport)
        del transport
        client.close()
        broker.until(lambda: not broker.shared)
        assert gone() is None
