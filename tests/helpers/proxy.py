"""A TCP proxy between a client and a broker that recognizes the frames of responses.

It forwards requests unchanged and passes every response, with the request's key and version, to a
function of the test, which may forward it, change it, or lose it: then the proxy cuts the
connection, like a network that fails after the broker has processed the request. The function may
also return the bytes that the client receives instead: none, the response twice, or a part of it.
Another function may repeat requests to the broker; the client never receives those responses. Each
connection has two threads with blocking sockets.

The proxy replaces the addresses in Metadata responses by its own, so that clients keep using it.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count

PRODUCE = 0
FETCH = 1
METADATA = 3
_REPEATED = b"\xff\xff\xff\xff"  # A correlation id that clients do not use: -1.
_HEADER = struct.Struct(">hhi")  # The start of every request: API key, version, correlation id.


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One response frame without its size: `payload` starts with the correlation id."""

    api_key: int
    api_version: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes for the client in place of a response, including sizes."""

    data: bytes
    then_cut: bool = False
    """Whether the connection ends after them."""


OnAnswer = Callable[[Answer], bytes | Raw | None]
"""The payload to forward instead, or None to lose the response and cut the connection."""

Again = Callable[[bytes], Sequence[bytes]]
"""Given a request, the requests to send after it once more."""


class Fault(Enum):
    """What may happen to a response in transit."""

    LOST = "lost with the connection"
    SWALLOWED = "swallowed"
    TWICE = "sent twice"
    TORN = "torn in the middle"


class FaultyAnswers:
    """Applies a fault to every third response of some kinds, `times` times; forwards all others."""

    def __init__(self, api_key: int, fault: Fault, times: int) -> None:
        self.done = 0
        self._api_key = api_key
        self._fault = fault
        self._times = times
        self._answers = count(1)

    def __call__(self, answer: Answer) -> bytes | Raw | None:
        payload = answer.payload
        if answer.api_key != self._api_key or self.done == self._times:
            return payload
        if next(self._answers) % 3:
            return payload
        self.done += 1
        match self._fault:
            case Fault.LOST:
                return None
            case Fault.SWALLOWED:
                return Raw(b"")
            case Fault.TWICE:
                return Raw(framed(payload) * 2)
            case Fault.TORN:
                return Raw(framed(payload)[: 4 + len(payload) // 2], then_cut=True)


class Proxy:
    """Listens on a free loopback port; ``with`` starts and ends it."""

    def __init__(
        self, upstream: str, on_answer: OnAnswer, *, again: Again = lambda request: ()
    ) -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._on_answer = on_answer
        self._again = again
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open_sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.bootstrap_servers = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # shutdown, not close, wakes a thread that is blocked in accept or recv.
        with self._lock:
            sockets = [self._listener, *self._open_sockets]
        for each in sockets:
            _cut(each)

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    client, _ = self._listener.accept()
                except OSError:
                    return
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Forward requests here, responses in another thread; the first to end cuts both."""
        try:
            broker = socket.create_connection(self._upstream)
        except OSError:  # The broker is down, so the proxy closes the connection, too.
            client.close()
            return
        with client, broker:
            with self._lock:
                self._open_sockets |= {client, broker}
            asked: dict[int, tuple[int, int]] = {}
            answers = threading.Thread(target=self._pass_answers, args=(broker, client, asked))
            answers.start()
            with suppress(OSError):
                while (request := _read_frame(client)) is not None:
                    api_key, api_version, correlation_id = _HEADER.unpack_from(request)
                    asked[correlation_id] = (api_key, api_version)
                    _send_frame(broker, request)
                    for repeated in self._again(request):
                        _send_frame(broker, _marked(repeated))
            _cut(broker)
            answers.join()
            with self._lock:
                self._open_sockets -= {client, broker}

    def _pass_answers(
        self, broker: socket.socket, client: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        with suppress(OSError):
            while (payload := _read_frame(broker)) is not None:
                if payload.startswith(_REPEATED):
                    continue
                api_key, api_version = asked.pop(int.from_bytes(payload[:4], "big"))
                if api_key == METADATA:
                    payload = self._with_our_address(payload)
                answer = Answer(api_key=api_key, api_version=api_version, payload=payload)
                changed = self._on_answer(answer)
                if changed is None:
                    break
                if isinstance(changed, bytes):
                    changed = Raw(framed(changed))
                client.sendall(changed.data)
                if changed.then_cut:
                    break
        _cut(client)

    def _with_our_address(self, payload: bytes) -> bytes:
        """Host and port are adjacent in every version of Metadata; the length stays the same."""
        host, port = self._upstream
        our_port = int(self.bootstrap_servers.rpartition(":")[2])
        theirs, ours = (host.encode() + struct.pack(">i", x) for x in (port, our_port))
        return payload.replace(theirs, ours)


def _marked(request: bytes) -> bytes:
    """Return the request with a correlation id that marks its response to be dropped."""
    return request[:4] + _REPEATED + request[8:]


def _cut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


def framed(payload: bytes) -> bytes:
    """Return the payload with its size in front."""
    return len(payload).to_bytes(4, "big") + payload


def _send_frame(to: socket.socket, payload: bytes) -> None:
    to.sendall(framed(payload))


def _read_frame(source: socket.socket) -> bytes | None:
    """Return the next frame without its size; None at the end of the stream."""
    size = _read_exactly(source, 4)
    return None if size is None else _read_exactly(source, int.from_bytes(size, "big"))


def _read_exactly(source: socket.socket, length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        piece = source.recv(length - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)
