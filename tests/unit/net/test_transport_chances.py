"""Responses are the same for any pieces in which bytes arrive and leave.

The transport is the real one, over a socket and a reactor whose behavior hypothesis chooses: reads
are short, sends write a few bytes or would block, in the middle of responses and of file regions,
and pending requests complete in any order.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plogd.log.segment.file_records import FileRegion
from plogd.net.tls.protocol_connection import ProtocolConnection
from plogd.net.transport import ServerTransport
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

CONTENT = random.Random(1).randbytes(300_000)
ROUNDS_MAX = 10_000

Request: TypeAlias = tuple[int, str, int]
"""API key, kind, length of the text; for a Fetch, how much of the file its response contains."""


class Reactor:
    """Records readers and writers, and calls none of them."""

    def __init__(self) -> None:
        self.readers: set[object] = set()
        self.writers: set[object] = set()
        self.addReader, self.removeReader = self.readers.add, self.readers.discard
        self.addWriter, self.removeWriter = self.writers.add, self.writers.discard


class Socket:
    """The bytes that the client has sent and that were not read, and those that it has received."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.received = bytearray()
        self.room = 0
        """How many bytes may be sent before the socket would block."""

    def fileno(self) -> int:
        return 1_000_000

    def setblocking(self, is_blocking: bool) -> None:
        assert not is_blocking

    def recv_into(self, target: memoryview) -> int:
        if not self.sent:
            raise BlockingIOError
        nbytes = min(len(target), len(self.sent))
        target[:nbytes] = self.sent[:nbytes]
        del self.sent[:nbytes]
        return nbytes

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        if not self.room:
            raise BlockingIOError
        taken = bytes(data[: self.room])
        self.room -= len(taken)
        self.received += taken
        return len(taken)

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...


class World:
    """One connection, and the steps that may happen to it in any order."""

    def __init__(self, file: WatchedFile) -> None:
        self.ports = SimPorts()
        self.dispatch = ScriptedDispatch()
        self.dispatch.hold = lambda key, text: text.startswith("slow")
        self.dispatch.answer = lambda key, text: (
            [b"head", FileRegion(file, 0, int(text.split()[1])), b"tail"]
            if key == FETCH
            else [response(text)]
        )
        self.file = file
        self.socket = Socket()
        self.reactor = Reactor()
        self.shared = make_connections(
            self.dispatch,
            self.ports,
            plog_response_buffer_max_bytes=64 * 1024,
            plog_request_turn_max_requests=3,
        )
        protocol = ProtocolConnection(self.shared, lambda transport: make_context())
        sock: Any = self.socket
        self.transport = ServerTransport(
            sock, protocol, ("192.0.2.1", 40000), None, 0, self.reactor
        )
        protocol.makeConnection(self.transport)
        self.unsent = b""

    def send(self, nbytes: int) -> None:
        """Send some bytes from the client; the transport reads them if it wants to."""
        piece, self.unsent = self.unsent[:nbytes], self.unsent[nbytes:]
        self.socket.sent += piece
        if self.socket.sent and self.transport in self.reactor.readers:
            assert self.transport.doRead() is None

    def take(self, nbytes: int) -> None:
        """Receive some bytes at the client, if the transport waits for that."""
        self.socket.room = nbytes
        if self.transport in self.reactor.writers:
            assert self.transport.doWrite() is None

    def block(self, _: int) -> None:
        """Stop receiving at the client for now."""
        self.socket.room = 0

    def settle(self, _: int) -> None:
        """Run due timers and jobs."""
        self.ports.settle()

    def release(self, number: int) -> None:
        """Complete one of the pending requests, not always the first."""
        waiting = list(self.dispatch.waiting)
        if waiting:
            self.dispatch.release(waiting[number % len(waiting)])

    def chill(self, number: int) -> None:
        """Evict the file from the page cache or load it again; a job must read an evicted file."""
        self.file.is_cached = number % 2 == 0

    def to_the_end(self, expected: int) -> None:
        """Run all steps until everything has been processed."""
        for _ in range(ROUNDS_MAX):
            if len(self.socket.received) >= expected and not self.unsent:
                return
            for step in (self.send, self.settle, self.release, self.take):
                step(100_000)
        raise AssertionError("it does not terminate")


LENGTHS = st.one_of(st.integers(0, 40), st.sampled_from([5_000, 70_000, 140_000]))
REQUESTS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from([PRODUCE, METADATA]), st.sampled_from(["quick", "slow"]), LENGTHS
        ),
        st.tuples(st.just(FETCH), st.just("file"), st.sampled_from([1, 17, 66_000, len(CONTENT)])),
    ),
    min_size=1,
    max_size=15,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "take", "block", "settle", "release", "chill"]),
        st.one_of(st.integers(1, 9), st.integers(1, 100_000)),
    ),
    max_size=80,
)


def in_words(number: int, request: Request) -> tuple[int, str]:
    """Return the encoded request; the number makes its text unique."""
    key, kind, length = request
    return key, f"file {length}" if key == FETCH else f"{kind} {number} {'x' * length}"


def unhurried(requests: list[tuple[int, str]]) -> bytes:
    """Return the responses to a client that waits for each one before the next request."""
    return b"".join(
        b"head" + CONTENT[: int(text.split()[1])] + b"tail" if key == FETCH else response(text)
        for key, text in requests
    )


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(choice=REQUESTS, steps=STEPS)
def test_responses_do_not_depend_on_the_pieces_of_transfer(
    tmp_path: Path, choice: list[Request], steps: list[tuple[str, int]]
) -> None:
    requests = [in_words(number, request) for number, request in enumerate(choice)]
    expected = unhurried(requests)
    file = WatchedFile(tmp_path / "0.log", CONTENT)
    world = World(file)
    world.unsent = b"".join(frame(key, text) for key, text in requests)

    def sendfile(_: int, source: int, position: int, count: int) -> int:
        return world.socket.send(os.pread(source, count, position))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plogd.net.output_queue.os.sendfile", sendfile)
        for step, number in steps:
            getattr(world, step)(number)
            assert expected.startswith(world.socket.received)
        world.to_the_end(len(expected))
    assert bytes(world.socket.received) == expected
    assert world.dispatch.started == [text for _, text in requests]
    assert (world.shared.memory.used_bytes, world.shared.slots.in_use) == (0, 0)
    assert file.holders == 1
    file.close()
