"""A blocking connection to a broker, for one request at a time.

The callers (simple.py, socket_network.py) choose the requests and their versions. A failed exchange
closes the connection, because the next bytes could still belong to its response. Not thread-safe.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, TypeVar

from plog.client.errors import BrokenAnswer
from plog.client.errors import ConnectionFailed as ConnectionFailed
from plog.client.network.host_addresses import look_up_within
from plog.client.network.tls_failures import handshake_failure, is_end, tls_failure
from plog.errors import KafkaError, RequestTimedOut
from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.schema import ApiMessage, WireError

if TYPE_CHECKING:
    from plog.client.network.tls_context import Security

_SIZE = Struct(">i")
# If the peer speaks HTTP or TLS, its first bytes, read as a size, exceed this limit.
_MAX_RESPONSE_BYTES = 256 << 20
# Memory is allocated in parts of this size as bytes arrive, regardless of the size in the response.
# A fetch of 4 MiB fits in one part with its header: to extend the part would copy it.
_RECEIVE_BYTES = (4 << 20) + (64 << 10)

_Response = TypeVar("_Response", bound=ApiMessage)


class SocketConnection:
    """An open connection; `timeout_s` limits each exchange, and `security` enables TLS.

    The constructor and every method raise ConnectionFailed, or RequestTimedOut if the broker does
    not respond.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float,
        client_id: str | None,
        security: Security | None = None,
    ) -> None:
        self.address = f"{host}:{port}"
        self._host = host
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._correlation_id = 0
        self._socket: socket.socket | None = None
        context = None if security is None else security.make_ssl_context()
        try:
            self._socket = _connect(host, port, timeout_s)
            # Each request is written as a whole, so Nagle's algorithm would only add latency.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                # TLS checks that the certificate is valid for this name.
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            text = f"cannot connect to {self.address}: {error.strerror or error}"
            # A broker may close the connection without a TLS alert, for example if the port does
            # not use TLS.
            if self._socket is not None and is_end(error):
                text = handshake_failure(self.address, "the broker closed it")
            self.close()
            raise tls_failure(error, address=self.address, host=host) or ConnectionFailed(
                text
            ) from error

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._socket is not None

    def close(self) -> None:
        """Close the connection. Repeated calls have no effect."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(
        self,
        request: ApiMessage,
        answer: type[_Response],
        version: int,
        *,
        timeout_s: float | None = None,
    ) -> _Response:
        """Send `request` and return its response; `timeout_s` replaces the connection's timeout.

        Raises WireError for a malformed response.
        """
        return self.begin(request, answer, version, timeout_s=timeout_s)()

    def begin(
        self,
        request: ApiMessage,
        answer: type[_Response],
        version: int,
        *,
        timeout_s: float | None = None,
    ) -> Callable[[], _Response]:
        """Send `request` and return a function that receives its response; see `ask`.

        The caller must call the function once before it sends another request. The time before that
        call does not count toward the timeout.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        began_s = time.monotonic()
        # Even if the caller waits longer for the response, sending must not take longer than the
        # connection's own timeout.
        self.send(request, version, timeout_s=min(limit_s, self._timeout_s))
        left_s = limit_s - (time.monotonic() - began_s)

        def receive() -> _Response:
            frame = self._receive_frame(time.monotonic() + left_s, limit_s)
            return self._decoded(frame, request, answer, version)

        return receive

    def _decoded(
        self, frame: bytearray, request: ApiMessage, answer: type[_Response], version: int
    ) -> _Response:
        try:
            correlation_id, position = decode_response_header(frame, request.api_key, version)
            # If a response belongs to another request, later responses cannot be trusted either.
            if correlation_id != self._correlation_id:
                self.close()
                raise ConnectionFailed(
                    f"{self.address} sent response {correlation_id} instead of"
                    f" {self._correlation_id}: a response was duplicated or lost;"
                    " the connection was closed"
                )
            return answer.decode(memoryview(frame)[position:], version)
        except WireError as error:
            self.close()
            raise BrokenAnswer(f"{self.address} sent a malformed response: {error}") from error

    def send(self, request: ApiMessage, version: int, *, timeout_s: float | None = None) -> None:
        """Send `request` without waiting for a response. See `ask` for `timeout_s`."""
        connection = self._open()
        self._correlation_id += 1
        header = RequestHeader(request.api_key, version, self._correlation_id, self._client_id)
        frame = encode_request(header, request)
        try:
            limit_s = self._timeout_s if timeout_s is None else timeout_s
            connection.settimeout(limit_s)
            connection.sendall(frame)
        except TimeoutError as error:
            raise self._failed(error, limit_s) from error
        except OSError as error:
            # With TLS 1.3, a broker that rejects the client's certificate sends an alert and then
            # closes the connection.
            raise self._failed(_pending_alert(connection) or error) from error

    def _receive_frame(self, deadline_s: float, limit_s: float) -> bytearray:
        """Return the next frame without its size; `limit_s`, the whole timeout, is for errors."""
        connection = self._open()
        try:
            (size,) = _SIZE.unpack(_receive_exactly(connection, _SIZE.size, deadline_s))
            if not 0 < size <= _MAX_RESPONSE_BYTES:
                raise ConnectionError(
                    f"invalid response size of {size} bytes; check that this is a Kafka port"
                )
            return _receive_exactly(connection, size, deadline_s)
        except OSError as error:
            raise self._failed(error, limit_s) from error

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionFailed(f"the connection to {self.address} is closed")
        return self._socket

    def _failed(self, error: OSError, limit_s: float = 0) -> KafkaError:
        """Close the connection and return the exception for `error`; `limit_s` is for timeouts."""
        self.close()
        if isinstance(error, TimeoutError):
            return RequestTimedOut(f"{self.address} did not respond within {limit_s:.3g} s")
        return tls_failure(
            error, address=self.address, host=self._host, has_begun=True
        ) or ConnectionFailed(f"the connection to {self.address} was lost: {error}")


def _connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """Return a socket connected to the first address of `host` that accepts the connection.

    The socket's timeout is the remainder of `timeout_s`, for a TLS handshake. Raises
    ConnectionFailed if the name cannot be resolved, and the first address's OSError if no address
    accepts.
    """
    deadline_s = time.monotonic() + timeout_s

    def left_s() -> float:
        # A timeout of 0 would make the socket nonblocking.
        return max(0.001, deadline_s - time.monotonic())

    addresses = look_up_within(host, port, timeout_s)
    failures: list[OSError] = []
    for tried, address in enumerate(addresses):
        # Each address may use an equal part of the remaining time, so that an address that does not
        # respond leaves time for the others.
        try:
            connected = socket.create_connection(
                (address, port), left_s() / (len(addresses) - tried)
            )
        except OSError as error:
            failures.append(error)
        else:
            connected.settimeout(left_s())
            return connected
    raise failures[0]


def _pending_alert(connection: socket.socket) -> OSError | None:
    """Return an unread TLS alert, which gives the broker's reason for closing, or None."""
    try:
        connection.recv(1)
    except OSError as reason:
        return reason
    return None


def _receive_exactly(connection: socket.socket, size: int, deadline_s: float) -> bytearray:
    """Return the next `size` bytes, which may arrive in several parts. Raises OSError."""
    data = bytearray(min(size, _RECEIVE_BYTES))
    done = 0
    while done < size:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        if done == len(data):
            data += bytes(min(size - done, _RECEIVE_BYTES))
        # Each part may take only the remaining time. Otherwise, a slow broker could prolong the
        # wait with every byte.
        connection.settimeout(left_s)
        # Received in place: fetches are large, and every copy of them takes time.
        with memoryview(data) as space:
            received = connection.recv_into(space[done:])
        if not received:
            raise ConnectionError("closed by the broker")
        done += received
    return data
