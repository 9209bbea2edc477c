"""Clients that do exactly what a test wants: bytes that are wrong, slow, too many, or never read.

A `Peer` is one blocking socket, with or without TLS; a `Crowd` is thousands that do the same at
once and are watched together. Requests are made of plog's own messages, as these tests are about
the connection; what the bytes of a message are is held by tests/unit/wire.
"""

from __future__ import annotations

import resource
import select
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest

from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.messages import API_BY_KEY
from plog.wire.messages.api_versions import ApiVersionsRequest
from plog.wire.schema import ApiMessage

TIMEOUT_S = 60.0
_RECEIVE_BYTES = 1 << 16
_TCP_REPAIR = 19  # Not in Python's socket module.
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time at all.


def request_frame(
    message: ApiMessage, version: int, correlation_id: int = 1, client_id: str | None = "peer"
) -> bytes:
    """A request as it travels."""
    return encode_request(
        RequestHeader(message.api_key, version, correlation_id, client_id), message
    )


def ping_frame(correlation_id: int = 1) -> bytes:
    """A request that every broker answers at once: ApiVersions, as librdkafka begins."""
    return request_frame(ApiVersionsRequest(), 0, correlation_id)


def address_of(server: str) -> tuple[str, int]:
    """``HOST:PORT``, an IPv6 host in brackets, as sockets want it."""
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


class Peer:
    """One connection to `server`; ``with`` ends it, as does `close`, and `reset` breaks it."""

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext | None = None,
        *,
        receive_buffer: int = 0,
        our_address: str = "",
    ) -> None:
        family = socket.AF_INET6 if server.startswith("[") else socket.AF_INET
        self._socket = socket.socket(family)
        if receive_buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(TIMEOUT_S)
        if our_address:
            self._socket.bind((our_address, 0))
        self._socket.connect(address_of(server))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address_of(server)[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def send_what_fits(self, data: bytes) -> int:
        """Send as much as goes without waiting; how much that was."""
        self._socket.setblocking(False)
        view = memoryview(data)
        try:
            while view:
                view = view[self._socket.send(view) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            pass
        finally:
            self._socket.settimeout(TIMEOUT_S)
        return len(data) - len(view)

    def answer(self) -> bytes:
        """The next answer without its size."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def ask(self, message: ApiMessage, version: int, correlation_id: int = 1) -> ApiMessage:
        """Send a request and wait for its answer."""
        self.send(request_frame(message, version, correlation_id))
        return self.answer_to(message, version, correlation_id)

    def answer_to(self, message: ApiMessage, version: int, correlation_id: int) -> ApiMessage:
        """The next answer, which must be the one to this request."""
        frame = self.answer()
        number, position = decode_response_header(frame, message.api_key, version)
        assert number == correlation_id
        return API_BY_KEY[message.api_key].response.decode(memoryview(frame)[position:], version)

    def ping(self) -> None:
        """Ask something simple and take the answer."""
        self.send(ping_frame())
        assert self.answer()[:4] == b"\0\0\0\1"

    def until_closed(self) -> bytes:
        """Everything that comes until the broker ends the connection, one way or another."""
        data = bytearray()
        try:
            while piece := self._socket.recv(_RECEIVE_BYTES):
                data += piece
        except (ConnectionError, ssl.SSLEOFError):
            pass
        return bytes(data)

    def until_cut(self) -> None:
        """The broker ends the connection, though nothing that it sent is read."""
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        assert poll.poll(TIMEOUT_S * 1000), f"not cut in {TIMEOUT_S:g} s"

    def has_ended(self) -> bool:
        """Whether the broker has ended the connection; takes what has come until then."""
        self._socket.setblocking(False)
        try:
            while self._socket.recv(_RECEIVE_BYTES):
                pass
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except (ConnectionError, ssl.SSLEOFError):
            pass
        finally:
            self._socket.settimeout(TIMEOUT_S)
        return True

    def stop_sending(self) -> None:
        """Say that nothing more will come."""
        socket.socket.shutdown(self._socket, socket.SHUT_WR)  # Past TLS, which says more.

    def reset(self) -> None:
        """End the connection with RST instead of FIN, as a process does that was killed."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close()

    def vanish(self) -> None:
        """Be gone, and nobody is told. Raises PermissionError where that takes more rights."""
        self._socket.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            piece = self._socket.recv(length - len(data))
            if not piece:
                raise ConnectionError(f"closed after {len(data)} of {length} bytes")
            data += piece
        return bytes(data)


class Crowd:
    """Many connections that are made at once and ended together."""

    def __init__(self, server: str, count: int) -> None:
        address = address_of(server)
        self.sockets: list[socket.socket] = []
        for _ in range(count):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(address)
            self.sockets.append(sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self.sockets:
            sock.close()

    def send(self, data: bytes) -> None:
        """Each sends `data`, as soon as it is connected."""
        for sock in self._each(select.EPOLLOUT):
            sock.sendall(data)

    def receive(self) -> None:
        """Each takes the beginning of an answer."""
        for sock in self._each(select.EPOLLIN):
            assert sock.recv(_RECEIVE_BYTES), "closed before it was answered"

    def until_closed(self) -> None:
        """The broker has ended every connection."""
        waiting = {sock.fileno(): sock for sock in self.sockets}
        with _polling(self.sockets, select.EPOLLIN) as poll:
            while waiting:
                for number in _ready(poll):
                    if _is_at_end(waiting[number]):
                        poll.unregister(number)
                        del waiting[number]

    def _each(self, event: int) -> Iterator[socket.socket]:
        """All of them, in the order in which `event` comes."""
        waiting = {sock.fileno(): sock for sock in self.sockets}
        with _polling(self.sockets, event) as poll:
            while waiting:
                for number in _ready(poll):
                    poll.unregister(number)
                    yield waiting.pop(number)


@contextmanager
def _polling(sockets: list[socket.socket], event: int) -> Iterator[select.epoll]:
    with select.epoll() as poll:
        for sock in sockets:
            poll.register(sock, event)
        yield poll


def _ready(poll: select.epoll) -> list[int]:
    found = poll.poll(TIMEOUT_S)
    assert found, f"nothing has happened for {TIMEOUT_S:g} s"
    return [number for number, _ in found]


def _is_at_end(sock: socket.socket) -> bool:
    try:
        while sock.recv(_RECEIVE_BYTES):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


@contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    """This process may open `count` files; skips the test where the system forbids it."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < count:
        pytest.skip(f"NOT RUN: needs {count} descriptors, RLIMIT_NOFILE allows {limits[1]}")
    if limits[0] != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(count, limits[0]), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def resident_bytes(pid: int) -> int:
    """RSS: what the process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmRSS"].split()[0]) * 1024


def open_sockets(pid: int) -> int:
    """How many sockets the process has open; files of logs come and go with their use."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += str(entry.readlink()).startswith("socket:")
    return count
