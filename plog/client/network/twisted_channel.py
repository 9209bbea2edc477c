"""A connection to a broker over Twisted: it sends requests and matches responses to them.

A frame that arrives in one piece is decoded in place. The parts of a larger frame are copied into a
buffer of the frame's size, so each byte is copied at most once. Records in a response are views of
that memory.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IConnector,
    IDelayedCall,
    IHandshakeListener,
    IReactorTime,
)
from twisted.internet.protocol import ClientFactory, Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from plog.client.errors import BrokenAnswer, ConnectionFailed
from plog.client.network.ports import Cancelled
from plog.client.network.tls_failures import handshake_failure
from plog.client.network.twisted_failures import reason_text
from plog.client.network.write_drain import WriteDrain
from plog.errors import KafkaError, RequestTimedOut
from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.schema import ApiMessage

log = logging.getLogger("plog.client")

R = TypeVar("R", bound=ApiMessage)

_SIZE = Struct(">i")
# If the peer speaks HTTP, its first bytes, read as a size, exceed this limit.
_MAX_FRAME_BYTES = 1 << 30
# In the protocol, correlation ids are signed 32-bit integers.
_MAX_CORRELATION_ID = 0x7FFFFFFF
_CLOSE_TIMEOUT_S = 5.0
"""The time in seconds that a closed connection has to write its remaining bytes."""


class _InFlight:
    """A request without a response; its caller may have stopped waiting."""

    __slots__ = ("answer", "api_key", "correlation_id", "deadline_s", "response", "version")

    def __init__(
        self,
        request: ApiMessage,
        response: type[ApiMessage],
        version: int,
        correlation_id: int,
        deadline_s: float,
    ) -> None:
        self.api_key = request.api_key
        self.response = response
        self.version = version
        self.correlation_id = correlation_id
        self.deadline_s = deadline_s
        self.answer: Deferred[Any] = Deferred(_cancel)


def _cancel(answer: Deferred[Any]) -> None:
    answer.errback(Failure(Cancelled()))


def give_up_after(
    clock: IReactorTime, answer: Deferred[Any], wait_s: float, request: ApiMessage, address: str
) -> None:
    """Fail `answer` with RequestTimedOut after `wait_s`."""

    def give_up() -> None:
        name = type(request).__name__.removesuffix("Request")
        error = RequestTimedOut(f"{address} did not respond to {name} within {wait_s:.3g} s")
        answer.errback(Failure(error))

    def stop(outcome: object) -> object:
        if call.active():
            call.cancel()
        return outcome

    call = clock.callLater(wait_s, give_up)
    # The timer must not outlive the wait, even if the wait is cancelled.
    answer.addBoth(stop)


@implementer(IHandshakeListener)
class TwistedChannel(Protocol):
    """A `Channel` as a Twisted protocol, created by a `ChannelFactory`."""

    def __init__(self, factory: ChannelFactory) -> None:
        self.address = factory.name
        self.is_open = False
        self._factory_of = factory
        self._clock = factory.clock
        self._client_id = factory.client_id
        self._requests: deque[_InFlight] = deque()
        self._correlation_id = 0
        self._write_drain: WriteDrain | None = None
        """The pending writes of requests without a response; None until the first one."""
        self._timer: IDelayedCall | None = None
        self._head = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self._tcp: Any = None
        self._write_out: Callable[[], object] = lambda: None
        self._write_some: Callable[[bytes], int | Exception] | None = None

    # -- requests -----------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        # Include requests with acks=0 until they are written, because their callers wait for that.
        return len(self._requests) + (0 if self._write_drain is None else len(self._write_drain))

    def ask(
        self,
        request: ApiMessage,
        response: type[R],
        version: int,
        *,
        timeout_s: float,
        wait_s: float | None = None,
    ) -> Awaitable[R]:
        # Write the request before returning, so that requests are sent in the order of the calls.
        rest = self._write_now(self._frame_of(request, version))
        deadline_s = self._clock.seconds() + timeout_s
        sent = _InFlight(request, response, version, self._correlation_id, deadline_s)
        self._requests.append(sent)
        self._watch_until(deadline_s)
        # Bytes are left if the socket has accepted only some of them, or if earlier bytes are
        # buffered.
        if rest:
            assert self.transport is not None
            self.transport.write(rest)
            # Try to write now; the reactor's next iteration writes the rest and handles errors.
            self._write_out()
        if wait_s is not None:
            give_up_after(self._clock, sent.answer, wait_s, request, self.address)
        return sent.answer

    def send(self, request: ApiMessage, version: int, *, timeout_s: float) -> Awaitable[None]:
        # Do not use `_write_now`: the drain needs the bytes to be in the transport's buffer.
        frame = self._frame_of(request, version)
        assert self.transport is not None
        self.transport.write(frame)
        if self._write_drain is None:
            self._write_drain = WriteDrain(self._tcp)
        deadline_s = self._clock.seconds() + timeout_s
        self._watch_until(deadline_s)
        return self._write_drain.of_all_written(deadline_s)

    def _frame_of(self, request: ApiMessage, version: int) -> bytes:
        if not self.is_open:
            raise ConnectionFailed(f"the connection to {self.address} is closed")
        # After the maximum, continue with 1.
        self._correlation_id = self._correlation_id % _MAX_CORRELATION_ID + 1
        header = RequestHeader(request.api_key, version, self._correlation_id, self._client_id)
        return encode_request(header, request)

    def _write_now(self, frame: bytes) -> bytes:
        """Write `frame` to the socket if no bytes are buffered; return the bytes not written."""
        # Bytes that are written directly must not overtake bytes in the transport's buffer.
        if self._write_some is None or self._tcp.dataBuffer or self._write_drain is not None:
            return frame
        # Usually, the whole request is written, and the reactor need not poll for writability.
        written = self._write_some(frame)
        # An exception means that the connection is lost. The reactor also detects that.
        return frame[written:] if isinstance(written, int) else frame

    def close(self) -> None:
        error = ConnectionFailed(f"the connection to {self.address} was closed")
        # An abort would discard written bytes that the kernel has not sent yet. Requests with
        # acks=0 count as sent when they are written.
        self._end(error, gently=self._write_drain is not None)

    # -- timeouts -----------------------------------------------------------------------------

    def _watch_until(self, deadline_s: float) -> None:
        """Check for overdue requests no later than `deadline_s`."""
        if self._timer is not None:
            # All requests share one timer. A later deadline is checked after the earliest one.
            if self._timer.getTime() <= deadline_s:
                return
            self._timer.cancel()
        left_s = deadline_s - self._clock.seconds()
        self._timer = self._clock.callLater(max(0.0, left_s), self._check_overdue)

    def _check_overdue(self) -> None:
        self._timer = None
        deadlines_s = [sent.deadline_s for sent in self._requests]
        if self._write_drain is not None:
            deadlines_s += self._write_drain.deadlines_s
        if not deadlines_s:
            return
        if (first_s := min(deadlines_s)) > self._clock.seconds():
            self._watch_until(first_s)
        else:
            # A broker answers in order, so later responses would also be late.
            self._end(RequestTimedOut(f"{self.address} did not respond in time"))

    # -- called by the transport --------------------------------------------------------------

    def connectionMade(self) -> None:
        self._factory_of.set_options(self.transport)
        # With TLS, the end of the handshake is reported separately.
        if not self._factory_of.expects_handshake:
            self._ready()

    def handshakeCompleted(self) -> None:
        """Open the channel: TLS is established and the peer is verified."""
        self._ready()

    def _ready(self) -> None:
        transport: Any = self.transport
        if self._factory_of.expects_handshake:
            # The TCP transport below TLS: bytes are written once its buffer is empty.
            transport = getattr(transport, "transport", transport)
        else:
            # With TLS, bytes must go through OpenSSL, never to the socket directly.
            self._write_some = getattr(transport, "writeSomeData", None)
        self._tcp = transport
        # Reactors that are based on completion instead of readiness (IOCP) lack this method.
        self._write_out = getattr(self._tcp, "doWrite", self._write_out)
        self.is_open = True
        self._factory_of.succeed(self)

    def connectionLost(self, reason: Failure = Failure(ConnectionFailed())) -> None:  # noqa: B008
        error = self._factory_of.explain(reason.value)
        if error is None:
            text = f"the connection to {self.address} was lost: {reason_text(reason.value)}"
            # If a connection ends before TLS is established, the port may not use TLS.
            if self._factory_of.expects_handshake and not self._factory_of.opened.called:
                text = handshake_failure(self.address, reason_text(reason.value))
            error = ConnectionFailed(text)
        self._factory_of.fail(error)
        self._end(error)

    def dataReceived(self, data: bytes) -> None:
        try:
            self._take(memoryview(data))
        except KafkaError as error:
            # Callers usually retry, so without a log message, the error would go unnoticed.
            log.warning("closed the connection to %s: %s", self.address, error)
            self._end(error)

    # -- frames -------------------------------------------------------------------------------

    def _take(self, data: memoryview) -> None:
        """Split `data` into frames. Raises KafkaError for an unexpected or invalid response."""
        position, end = 0, len(data)
        if self._frame is None and not self._head and _SIZE.size < end <= _MAX_FRAME_BYTES:
            (size,) = _SIZE.unpack_from(data)
            if size == end - _SIZE.size:  # The common case: exactly one response.
                self._answered(data[_SIZE.size :])
                return
        while position < end:
            if self._frame is not None:
                position += self._fill(self._frame, data[position:])
                continue
            # Even the four bytes of the size may arrive in pieces.
            if len(self._head) + end - position < _SIZE.size:
                self._head += data[position:]
                return
            missing = _SIZE.size - len(self._head)
            (size,) = _SIZE.unpack(self._head + data[position : position + missing])
            position += missing
            self._head = b""
            if not 0 < size <= _MAX_FRAME_BYTES:
                raise ConnectionFailed(
                    f"{self.address} sent an invalid response size of {size} bytes;"
                    " check that this is a Kafka port"
                )
            if size <= end - position:
                self._answered(data[position : position + size])
                position += size
            else:
                self._frame, self._filled = bytearray(size), 0

    def _fill(self, frame: bytearray, data: memoryview) -> int:
        """Copy the next bytes of an incomplete frame into its buffer; return their number."""
        used = min(len(data), len(frame) - self._filled)
        frame[self._filled : self._filled + used] = data[:used]
        self._filled += used
        if self._filled == len(frame):
            self._frame = None
            self._answered(memoryview(frame))
        return used

    def _answered(self, frame: memoryview) -> None:
        # After this side has closed the connection, the callers already have their errors.
        if not self.is_open:
            return
        if not self._requests:
            raise ConnectionFailed(f"{self.address} sent a response without a request")
        sent = self._requests.popleft()
        try:
            number, position = decode_response_header(frame, sent.api_key, sent.version)
            is_due = number == sent.correlation_id
            # A response to another request cannot be decoded with the schema of this request.
            response = sent.response.decode(frame[position:], sent.version) if is_due else None
        except Exception as error:
            broken = BrokenAnswer(f"{self.address} sent a malformed response: {error}")
            # The connection must be closed before the caller of this request runs.
            self._end(broken)
            self._finish(sent, broken)
            return
        if not is_due:
            # `sent` still waits for its response, so `_end` must find it in the list and fail it.
            self._requests.appendleft(sent)
            raise ConnectionFailed(
                f"{self.address} sent response {number} instead of {sent.correlation_id}:"
                " a response was duplicated or lost, so later ones cannot be trusted"
            )
        self._finish(sent, response)

    def _finish(self, sent: _InFlight, outcome: object) -> None:
        if sent.answer.called:  # The caller has cancelled the wait or timed out.
            return
        if isinstance(outcome, Exception):
            sent.answer.errback(Failure(outcome))
        else:
            sent.answer.callback(outcome)

    def _end(self, error: KafkaError, *, gently: bool = False) -> None:
        """Close the channel and fail all pending requests.

        After a timeout, only overdue requests fail with RequestTimedOut; all others fail with
        ConnectionFailed.
        """
        was_open, self.is_open = self.is_open, False
        now_s = self._clock.seconds()

        def error_at(deadline_s: float) -> KafkaError:
            if isinstance(error, RequestTimedOut) and deadline_s > now_s:
                return ConnectionFailed(f"closed the connection to {self.address}: {error}")
            return error

        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        drain, self._write_drain = self._write_drain, None
        if drain is not None:
            drain.stop(error_at)
        if was_open and self.transport is not None:
            if gently:
                # `loseConnection` writes the buffered bytes first. If the broker does not read
                # them, the timer aborts the connection.
                self.transport.loseConnection()
                self._timer = self._clock.callLater(_CLOSE_TIMEOUT_S, self._forget)
            else:
                _abort(self.transport)
        # Replace the list first: a callback may send another request.
        sent, self._requests = self._requests, deque()
        self._frame = None
        for request in sent:
            self._finish(request, error_at(request.deadline_s))

    def _forget(self) -> None:
        """Abort the connection, because the broker does not read the remaining bytes."""
        self._timer = None
        _abort(self.transport)


class ChannelFactory(ClientFactory):
    """A factory for one channel. `opened` fires with the channel or fails with ConnectionFailed."""

    # Otherwise, Twisted would log each start and stop of the factory.
    noisy = False

    def __init__(
        self,
        clock: IReactorTime,
        name: str,
        *,
        client_id: str | None,
        socket_buffers: tuple[int, int] = (-1, -1),
    ) -> None:
        self.clock = clock
        self.name = name
        self.client_id = client_id
        self.opened: Deferred[TwistedChannel] = Deferred(self._cancelled)
        self.connector: IConnector | None = None
        self.expects_handshake = False
        self._explain_tls: Callable[..., KafkaError | None] | None = None
        self._socket_buffers = socket_buffers
        self._channel: TwistedChannel | None = None
        self._timer: IDelayedCall | None = None

    def expect_handshake(self, explain: Callable[..., KafkaError | None] | None = None) -> None:
        """Open the channel only after the TLS handshake; `explain` is `TlsClient.failure_of`."""
        self.expects_handshake = True
        self._explain_tls = explain

    def explain(self, error: BaseException | None) -> KafkaError | None:
        """Return the exception for a lost connection if TLS explains the loss, otherwise None."""
        if self._explain_tls is None:
            return None
        return self._explain_tls(error, self.name, has_begun=self.opened.called)

    def give_up_after(self, timeout_s: float) -> None:
        """Fail if the channel is not open after `timeout_s`."""
        # The connector's own timeout does not include the TLS handshake.
        if not self.opened.called:
            self._timer = self.clock.callLater(timeout_s, self._timed_out)

    def buildProtocol(self, addr: object) -> TwistedChannel:
        self._channel = TwistedChannel(self)
        return self._channel

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        self.fail(ConnectionFailed(f"cannot connect to {self.name}: {reason_text(reason.value)}"))

    def set_options(self, transport: Any) -> None:
        """Set the socket options."""
        # Each request is written as a whole, so Nagle's algorithm would only add latency.
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
        handle = transport.getHandle()
        sizes = zip((socket.SO_SNDBUF, socket.SO_RCVBUF), self._socket_buffers, strict=True)
        for option, size in sizes:
            # As in Kafka, -1 means the system's default.
            if size > 0 and isinstance(handle, socket.socket):
                handle.setsockopt(socket.SOL_SOCKET, option, size)

    def succeed(self, channel: TwistedChannel) -> None:
        """Fire `opened` with the open channel."""
        self._stop_timer()
        if not self.opened.called:
            self.opened.callback(channel)

    def fail(self, error: KafkaError) -> None:
        """Fail `opened`, unless the channel is already open."""
        self._stop_timer()
        if not self.opened.called:
            self.opened.errback(Failure(error))

    def _timed_out(self) -> None:
        self._timer = None
        self.fail(ConnectionFailed(f"cannot connect to {self.name}: timed out"))
        self._drop()

    def _cancelled(self, opened: Deferred[TwistedChannel]) -> None:
        opened.errback(Failure(Cancelled()))
        self._stop_timer()
        self._drop()

    def _drop(self) -> None:
        if self._channel is not None and self._channel.transport is not None:
            _abort(self._channel.transport)
        elif self.connector is not None:
            self.connector.disconnect()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _abort(transport: Any) -> None:
    """Close a connection without writing the remaining bytes."""
    transport.abortConnection()
