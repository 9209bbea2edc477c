"""One connection to a broker over Twisted: frames out and in, answers to their requests.

A frame that comes whole is read where it lies; the parts of a larger one are gathered in a buffer
of its size, so that no byte is copied twice. Records in an answer are views of either.
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
from plog.client.network.tls_failures import no_tls_yet
from plog.client.network.twisted_failures import reason_text
from plog.client.network.write_drain import WriteDrain
from plog.errors import KafkaError, RequestTimedOut
from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.schema import ApiMessage

log = logging.getLogger("plog.client")

R = TypeVar("R", bound=ApiMessage)

_SIZE = Struct(">i")
_MAX_FRAME_BYTES = 1 << 30
_MAX_CORRELATION_ID = 0x7FFFFFFF
_FAREWELL_S = 5.0
"""How long a closed connection may take for what it still has to bring to the broker."""


class _Asked:
    """A request whose answer has not come; nobody may be waiting for it any more."""

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
    """Fail `answer` with RequestTimedOut after `wait_s`: its caller waits no longer."""

    def give_up() -> None:
        name = type(request).__name__.removesuffix("Request")
        error = RequestTimedOut(f"{address} has not answered {name} within {wait_s:.3g} s")
        answer.errback(Failure(error))

    def stop(outcome: object) -> object:
        if call.active():
            call.cancel()
        return outcome

    call = clock.callLater(wait_s, give_up)
    answer.addBoth(stop)


@implementer(IHandshakeListener)
class TwistedChannel(Protocol):
    """See `Channel`. Made by a `ChannelFactory`."""

    def __init__(self, factory: ChannelFactory) -> None:
        self.address = factory.name
        self.is_open = False
        self._factory_of = factory
        self._clock = factory.clock
        self._client_id = factory.client_id
        self._asked: deque[_Asked] = deque()
        self._correlation_id = 0
        self._departures: WriteDrain | None = None
        """Of requests without an answer, once there was one."""
        self._timer: IDelayedCall | None = None
        self._head = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self._tcp: Any = None
        self._write_out: Callable[[], object] = lambda: None
        self._write_some: Callable[[bytes], int | Exception] | None = None

    # -- asking -------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        return len(self._asked) + (0 if self._departures is None else len(self._departures))

    def ask(
        self,
        request: ApiMessage,
        response: type[R],
        version: int,
        *,
        timeout_s: float,
        wait_s: float | None = None,
    ) -> Awaitable[R]:
        rest = self._write_what_goes(self._frame_of(request, version))
        deadline_s = self._clock.seconds() + timeout_s
        asked = _Asked(request, response, version, self._correlation_id, deadline_s)
        self._asked.append(asked)
        self._watch_until(deadline_s)
        if rest:
            assert self.transport is not None
            self.transport.write(rest)
            # Now, and not in the reactor's next turn; what does not go, or fails, it tries again.
            self._write_out()
        if wait_s is not None:
            give_up_after(self._clock, asked.answer, wait_s, request, self.address)
        return asked.answer

    def send(self, request: ApiMessage, version: int, *, timeout_s: float) -> Awaitable[None]:
        frame = self._frame_of(request, version)
        assert self.transport is not None
        self.transport.write(frame)
        if self._departures is None:
            self._departures = WriteDrain(self._tcp)
        deadline_s = self._clock.seconds() + timeout_s
        self._watch_until(deadline_s)
        return self._departures.of_all_written(deadline_s)

    def _frame_of(self, request: ApiMessage, version: int) -> bytes:
        if not self.is_open:
            raise ConnectionFailed(f"the connection to {self.address} is closed")
        self._correlation_id = self._correlation_id % _MAX_CORRELATION_ID + 1
        header = RequestHeader(request.api_key, version, self._correlation_id, self._client_id)
        return encode_request(header, request)

    def _write_what_goes(self, frame: bytes) -> bytes:
        """Give it to the system if nothing waits before it; what is left of it.

        What all goes at once, as most requests do, need not have the reactor look whether it may.
        """
        if self._write_some is None or self._tcp.dataBuffer or self._departures is not None:
            return frame
        written = self._write_some(frame)
        # An exception says that the connection is lost: the reactor finds that out as well.
        return frame[written:] if isinstance(written, int) else frame

    def close(self) -> None:
        error = ConnectionFailed(f"the connection to {self.address} was closed")
        # Aborting would take back what has left and is still on its way.
        self._end(error, gently=self._departures is not None)

    # -- time ---------------------------------------------------------------------------------

    def _watch_until(self, deadline_s: float) -> None:
        """Look then whether something is overdue, if not earlier."""
        if self._timer is not None:
            if self._timer.getTime() <= deadline_s:
                return
            self._timer.cancel()
        left_s = deadline_s - self._clock.seconds()
        self._timer = self._clock.callLater(max(0.0, left_s), self._look)

    def _look(self) -> None:
        self._timer = None
        deadlines_s = [asked.deadline_s for asked in self._asked]
        if self._departures is not None:
            deadlines_s += self._departures.deadlines_s
        if not deadlines_s:
            return
        if (first_s := min(deadlines_s)) > self._clock.seconds():
            self._watch_until(first_s)
        else:
            self._end(RequestTimedOut(f"{self.address} has not answered in time"))

    # -- what the transport calls -------------------------------------------------------------

    def connectionMade(self) -> None:
        self._factory_of.set_options(self.transport)
        if not self._factory_of.expects_handshake:
            self._ready()

    def handshakeCompleted(self) -> None:
        """TLS stands, and the peer is who it should be."""
        self._ready()

    def _ready(self) -> None:
        transport: Any = self.transport
        if self._factory_of.expects_handshake:
            transport = getattr(transport, "transport", transport)
        else:
            self._write_some = getattr(transport, "writeSomeData", None)
        self._tcp = transport
        # Where a reactor is told when to write, and does not itself say when it has written.
        self._write_out = getattr(self._tcp, "doWrite", self._write_out)
        self.is_open = True
        self._factory_of.succeed(self)

    def connectionLost(self, reason: Failure = Failure(ConnectionFailed())) -> None:  # noqa: B008
        error = self._factory_of.explain(reason.value)
        if error is None:
            text = f"the connection to {self.address} broke: {reason_text(reason.value)}"
            if self._factory_of.expects_handshake and not self._factory_of.opened.called:
                text = no_tls_yet(self.address, reason_text(reason.value))
            error = ConnectionFailed(text)
        self._factory_of.fail(error)
        self._end(error)

    def dataReceived(self, data: bytes) -> None:
        try:
            self._take(memoryview(data))
        except KafkaError as error:
            # Whoever waits will mostly try again, so that nobody else would tell of it.
            log.warning("%s; the connection was closed", error)
            self._end(error)

    # -- frames -------------------------------------------------------------------------------

    def _take(self, data: memoryview) -> None:
        """Cut `data` into frames. Raises KafkaError for what is no answer to what was asked."""
        position, end = 0, len(data)
        if self._frame is None and not self._head and _SIZE.size < end <= _MAX_FRAME_BYTES:
            (size,) = _SIZE.unpack_from(data)
            if size == end - _SIZE.size:  # As it mostly is: one answer, and nothing else.
                self._answered(data[_SIZE.size :])
                return
        while position < end:
            if self._frame is not None:
                position += self._fill(self._frame, data[position:])
                continue
            if len(self._head) + end - position < _SIZE.size:
                self._head += data[position:]
                return
            missing = _SIZE.size - len(self._head)
            (size,) = _SIZE.unpack(self._head + data[position : position + missing])
            position += missing
            self._head = b""
            if not 0 < size <= _MAX_FRAME_BYTES:
                raise ConnectionFailed(
                    f"{self.address} sent an answer of {size} bytes; is it a broker's port?"
                )
            if size <= end - position:
                self._answered(data[position : position + size])
                position += size
            else:
                self._frame, self._filled = bytearray(size), 0

    def _fill(self, frame: bytearray, data: memoryview) -> int:
        """Put the next bytes of an unfinished frame in their place; how many those were."""
        used = min(len(data), len(frame) - self._filled)
        frame[self._filled : self._filled + used] = data[:used]
        self._filled += used
        if self._filled == len(frame):
            self._frame = None
            self._answered(memoryview(frame))
        return used

    def _answered(self, frame: memoryview) -> None:
        if not self.is_open:
            return
        if not self._asked:
            raise ConnectionFailed(f"{self.address} sent an answer nobody asked for")
        asked = self._asked.popleft()
        try:
            number, position = decode_response_header(frame, asked.api_key, asked.version)
            is_due = number == asked.correlation_id
            response = asked.response.decode(frame[position:], asked.version) if is_due else None
        except Exception as error:
            broken = BrokenAnswer(f"{self.address} sent what is no answer: {error}")
            self._end(broken)
            self._finish(asked, broken)
            return
        if not is_due:
            self._asked.appendleft(asked)
            raise ConnectionFailed(
                f"{self.address} sent answer {number} when {asked.correlation_id} was due: one "
                "came twice or was lost, and nothing more that it sends can be relied on"
            )
        self._finish(asked, response)

    def _finish(self, asked: _Asked, outcome: object) -> None:
        if asked.answer.called:  # Nobody waits any more.
            return
        if isinstance(outcome, Exception):
            asked.answer.errback(Failure(outcome))
        else:
            asked.answer.callback(outcome)

    def _end(self, error: KafkaError, *, gently: bool = False) -> None:
        """Close it, and tell all who wait: the first that is overdue of the silence."""
        was_open, self.is_open = self.is_open, False
        now_s = self._clock.seconds()

        def told(deadline_s: float) -> KafkaError:
            if isinstance(error, RequestTimedOut) and deadline_s > now_s:
                return ConnectionFailed(f"the connection to {self.address} was given up: {error}")
            return error

        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        departures, self._departures = self._departures, None
        if departures is not None:
            departures.stop(told)
        if was_open and self.transport is not None:
            if gently:
                self.transport.loseConnection()
                self._timer = self._clock.callLater(_FAREWELL_S, self._forget)
            else:
                _abort(self.transport)
        asked, self._asked = self._asked, deque()
        self._frame = None
        for request in asked:
            self._finish(request, told(request.deadline_s))

    def _forget(self) -> None:
        """The broker does not take what is still to be brought to it."""
        self._timer = None
        _abort(self.transport)


class ChannelFactory(ClientFactory):
    """Makes one channel; `opened` has it, or fails with ConnectionFailed."""

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
        """The channel is open only when TLS stands; `explain` is `TlsClient.failure_of`."""
        self.expects_handshake = True
        self._explain_tls = explain

    def explain(self, error: BaseException | None) -> KafkaError | None:
        """What to raise for what ended the connection, if TLS says why."""
        if self._explain_tls is None:
            return None
        return self._explain_tls(error, self.name, has_begun=self.opened.called)

    def give_up_after(self, timeout_s: float) -> None:
        """Fail if it is not open in time; the connector's own limit ends with TCP's handshake."""
        if not self.opened.called:
            self._timer = self.clock.callLater(timeout_s, self._too_late)

    def buildProtocol(self, addr: object) -> TwistedChannel:
        self._channel = TwistedChannel(self)
        return self._channel

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        self.fail(ConnectionFailed(f"cannot connect to {self.name}: {reason_text(reason.value)}"))

    def set_options(self, transport: Any) -> None:
        """What the socket is told once."""
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
        handle = transport.getHandle()
        sizes = zip((socket.SO_SNDBUF, socket.SO_RCVBUF), self._socket_buffers, strict=True)
        for option, size in sizes:
            if size > 0 and isinstance(handle, socket.socket):
                handle.setsockopt(socket.SOL_SOCKET, option, size)

    def succeed(self, channel: TwistedChannel) -> None:
        """It is open."""
        self._stop_timer()
        if not self.opened.called:
            self.opened.callback(channel)

    def fail(self, error: KafkaError) -> None:
        """It will not be opened; nothing if it has been."""
        self._stop_timer()
        if not self.opened.called:
            self.opened.errback(Failure(error))

    def _too_late(self) -> None:
        self._timer = None
        self.fail(ConnectionFailed(f"{self.name} took too long to connect"))
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
    """End a connection without waiting for what has not left yet."""
    transport.abortConnection()
