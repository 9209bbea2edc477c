"""Hostile clients, and a measurement of their effect on other clients.

A `HostileConnection` sends arbitrary bytes. `Pings` repeatedly sends ApiVersions over a separate
connection, and measures how long each response takes.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from plog.client.network.socket_connection import SocketConnection
from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.messages import API_BY_KEY
from plog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from plog.wire.schema import ApiMessage
from plogd.testing.broker_process import BrokerProcess

TIMEOUT_S = 60.0
_SIZE = struct.Struct(">i")


def host_and_port(broker: BrokerProcess) -> tuple[str, int]:
    """Return the host and port of the broker."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return host, int(port)


def frame_of(request: ApiMessage, version: int) -> bytes:
    """Return the frame of a request."""
    return encode_request(RequestHeader(request.api_key, version, 1, "hostile"), request)


class HostileConnection:
    """A connection that sends arbitrary bytes."""

    def __init__(self, broker: BrokerProcess, timeout_s: float = TIMEOUT_S) -> None:
        self._socket = socket.create_connection(host_and_port(broker), timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send the bytes, as far as the broker accepts them."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # Already closed; `answer` will report it.

    def answer(self) -> bytes | None:
        """Return the next response without its size; None if the connection was closed instead."""
        size = self._receive(_SIZE.size)
        return None if size is None else self._receive(_SIZE.unpack(size)[0])

    def ask(self, request: ApiMessage, version: int) -> ApiMessage | None:
        """Return the response to a request; None if the connection was closed instead."""
        self.send(frame_of(request, version))
        data = self.answer()
        if data is None:
            return None
        _, position = decode_response_header(data, request.api_key, version)
        return API_BY_KEY[request.api_key].response.decode(data[position:], version)

    def drain(self, seconds: float) -> None:
        """Read until the broker closes the connection, or the time is up."""
        deadline = time.monotonic() + seconds
        try:
            while (left := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not self._socket.recv(1 << 16):
                    return
        except (TimeoutError, ConnectionResetError):
            pass

    def _receive(self, nbytes: int) -> bytes | None:
        received = bytearray()
        while len(received) < nbytes:
            try:
                piece = self._socket.recv(min(1 << 20, nbytes - len(received)))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            received += piece
        return bytes(received)


class Pings:
    """Sends requests until the with statement ends; `count` of them have been answered.

    The end of the statement raises the error of a request that got no response.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        host, port = host_and_port(broker)
        self._connection = SocketConnection(host, port, timeout_s=TIMEOUT_S, client_id="ping")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.count = 0
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join(2 * TIMEOUT_S)
        self._connection.close()
        if self._error is not None:
            raise self._error

    def _ask(self) -> None:
        while True:
            is_last = self._is_over.wait(0.002)
            try:
                self._connection.ask(ApiVersionsRequest(), ApiVersionsResponse, version=0)
            except Exception as error:
                self._error = error
                return
            self.count += 1
            if is_last:
                return


def memory_mb(broker: BrokerProcess) -> int:
    """Return the peak memory of the broker (VmHWM)."""
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("the kernel does not report VmHWM")
