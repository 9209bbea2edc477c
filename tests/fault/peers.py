"""Clients that misbehave as a test requires: wrong, slow, too many or never reading.

A `Peer` is one blocking socket, with or without TLS; a `Crowd` is thousands of connections that act
together and are watched together. They use plog's own messages, because these tests are about the
connection; tests/unit/wire tests the encoding of messages.
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
_TCP_REPAIR = 19  # Missing from Python's socket module.
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, with a timeout of 0.


def request_frame(
    message: ApiMessage, version: int, correlation_id: int = 1, client_id: str | None = "peer"
) -> bytes:
    """Return an encoded request with its size."""
    return encode_request(
        RequestHeader(message.api_key, version, correlation_id, client_id), message
    )


def ping_frame(correlation_id: int = 1) -> bytes:
    """Return an ApiVersions request, which a broker always handles immediately."""
    return request_frame(ApiVersionsRequest(), 0, correlation_id)


def address_of(server: str) -> tuple[str, int]:
    """Split ``HOST:PORT``, with an IPv6 host in brackets, into a socket address."""
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


class Peer:
    """A connection to `server`; leaving its ``with`` block closes it."""

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
        """Send `data`."""
        self._socket.sendall(data)

    def send_without_blocking(self, data: bytes) -> int:
        """Send as much of `data` as possible without blocking; return the number of bytes."""
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

    def response(self) -> bytes:
        """Return the next response without its size."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def request(self, message: ApiMessage, version: int, correlation_id: int = 1) -> ApiMessage:
        """Send a request and return its response."""
        self.send(request_frame(message, version, correlation_id))
        return self.response_to(message, version, correlation_id)

    def response_to(self, message: ApiMessage, version: int, correlation_id: int) -> ApiMessage:
        """Return the next response, which must belong to this request."""
        frame = self.response()
        number, position = decode_response_header(frame, message.api_key, version)
        assert number == correlation_id
        return API_BY_KEY[message.api_key].response.decode(memoryview(frame)[position:], version)

    def ping(self) -> None:
        """Send an ApiVersions request and read the response."""
        self.send(ping_frame())
        assert self.response()[:4] == b"\0\0\0\1"

    def read_until_closed(self) -> bytes:
        """Return all bytes until the broker closes or resets the connection."""
        data = bytearray()
        try:
            while chunk := self._socket.recv(_RECEIVE_BYTES):
                data += chunk
        except (ConnectionError, ssl.SSLEOFError):
            pass
        return bytes(data)

    def wait_until_aborted(self) -> None:
        """Wait, without reading, until the broker aborts the connection."""
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        assert poll.poll(TIMEOUT_S * 1000), f"the connection was not aborted within {TIMEOUT_S:g} s"

    def has_ended(self) -> bool:
        """Whether the broker has closed the connection; discards the bytes received so far."""
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
        """Close the sending side of the connection."""
        socket.socket.shutdown(
            self._socket, socket.SHUT_WR
        )  # Bypasses TLS, which would send a close alert.

    def reset(self) -> None:
        """Close the connection with RST instead of FIN."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close()

    def close_silently(self) -> None:
        """Close the connection without a packet. Raises PermissionError without CAP_NET_ADMIN."""
        self._socket.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            chunk = self._socket.recv(length - len(data))
            if not chunk:
                raise ConnectionError(f"closed after {len(data)} of {length} bytes")
            data += chunk
        return bytes(data)


class Crowd:
    """Many connections that are opened and closed together."""

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
        """Send `data` on each connection as soon as it is established."""
        for sock in self._each(select.EPOLLOUT):
            sock.sendall(data)

    def receive(self) -> None:
        """Receive the beginning of a response on each connection."""
        for sock in self._each(select.EPOLLIN):
            assert sock.recv(_RECEIVE_BYTES), "closed before the response"

    def wait_until_closed(self) -> None:
        """Wait until the broker has closed every connection."""
        waiting = {sock.fileno(): sock for sock in self.sockets}
        with _polling(self.sockets, select.EPOLLIN) as poll:
            while waiting:
                for number in _ready(poll):
                    if _is_at_end(waiting[number]):
                        poll.unregister(number)
                        del waiting[number]

    def _each(self, event: int) -> Iterator[socket.socket]:
        """Yield every socket, in the order in which `event` occurs."""
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
    assert found, f"no event within {TIMEOUT_S:g} s"
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
    """Let this process open `count` files; skip the test if the system forbids it."""
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
    """Return the resident set size of the process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmRSS"].split()[0]) * 1024


def open_sockets(pid: int) -> int:
    """Return the number of open sockets of the process; log files are opened and closed on use."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += str(entry.readlink()).startswith("socket:")
    return count
