"""A small HTTP server for pages that are read: GET and HEAD, one request per connection.

It answers the first request of a connection and closes it, so a client that sends thousands of
requests at once gets one response. A request with a body is refused before the body is read. What a
client sends after its request is discarded for a few seconds, so that it can read the response
before the connection is reset. Connections are bounded in number and time, request heads in size;
a response is copied to the socket piece by piece, as the client reads it.

site.py has the pages; reactor thread only. Source: RFC 9112; nginx's ``lingering_close``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias

from twisted.internet.interfaces import IAddress, IPullProducer
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from plogd.http.other_protocols import mistake_in
from plogd.logging import RateLimit
from plogd.ports import Later, Timer, Timers

log = Logger()

CONNECTIONS_MAX: Final = 32
"""Beyond this, a new connection takes the place of the oldest one."""
CONNECTION_MAX_MS: Final = 30_000.0
"""How long a connection may last, from its beginning to its last byte."""
DISCARD_MAX_MS: Final = 5_000.0
"""How long input is discarded after a response that the client has not closed the connection on."""
HEAD_MAX_BYTES: Final = 16 * 1024
PIECE_BYTES: Final = 64 * 1024
_PEER_LOG_INTERVAL_S: Final = 60.0


class Response(NamedTuple):
    """What a page answers."""

    status: HTTPStatus
    content_type: str
    body: bytes


Page: TypeAlias = Callable[[], "Response | Later[Response]"]


class _BadRequest(Exception):
    """The request is answered with an error and has no other effect."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class _Request(NamedTuple):
    method: bytes
    path: str


class HttpFactory(Factory):
    """The connections of one HTTP port.

    Args:
        pages: what is served, by path.
        seconds: a clock, for the rate of log lines.
    """

    noisy = False

    def __init__(
        self, pages: Mapping[str, Page], timers: Timers, seconds: Callable[[], float]
    ) -> None:
        self.pages = pages
        self.timers = timers
        self._seconds = seconds
        self._open: dict[HttpConnection, None] = {}
        self._peer_log = RateLimit(_PEER_LOG_INTERVAL_S)

    def buildProtocol(self, addr: IAddress | None) -> HttpConnection:
        """A connection, for which another one may have to go."""
        if len(self._open) >= CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            self.report(oldest.host, f"is the oldest of {CONNECTIONS_MAX}, to accept another one")
            oldest.abort()
            self.closed(oldest)
        return HttpConnection(self)

    def opened(self, connection: HttpConnection) -> None:
        """A connection has been made."""
        self._open[connection] = None

    def closed(self, connection: HttpConnection) -> None:
        """A connection has ended, or is about to."""
        self._open.pop(connection, None)

    def open_connections(self) -> list[HttpConnection]:
        """The connections that are open, oldest first."""
        return list(self._open)

    def report(self, host: str, what: str) -> None:
        """Log one line about what a client did, but not one each time."""
        if self._peer_log.admit((host, what), self._seconds()) is not None:
            log.warn(
                "{host}: closed a connection to plog.http.port that {what}", host=host, what=what
            )


class HttpConnection(Protocol):
    """One request and its response."""

    def __init__(self, factory: HttpFactory) -> None:
        self._factory = factory
        self._transport: Any = None  # Twisted's own type for it lacks most of what it has.
        self._head = bytearray()
        self._has_request = False
        self._waits_for: Later[Response] | None = None
        self._sender: _Sender | None = None
        self._deadline: Timer | None = None
        self.host = ""

    @property
    def sending(self) -> bytes | None:
        """The body that is being sent."""
        return None if self._sender is None else self._sender.body

    def connectionMade(self) -> None:
        """Wait for a request, but not for long."""
        self._transport = self.transport
        self.host = getattr(self._transport.getPeer(), "host", "")
        self._factory.opened(self)
        self._close_after(CONNECTION_MAX_MS, "has not ended after 30 s")

    def dataReceived(self, data: bytes) -> None:
        """Bytes of the request, or bytes after it, which are discarded."""
        if self._has_request:
            return
        mistake = None if self._head else mistake_in(data)
        if mistake is not None:
            self._has_request = True
            self._factory.report(self.host, f"sent {mistake}")
            self._transport.loseConnection()
            return
        self._head += data
        head, end, _ = bytes(self._head[: HEAD_MAX_BYTES + 4]).partition(b"\r\n\r\n")
        if not end and len(self._head) <= HEAD_MAX_BYTES:
            return
        self._has_request = True
        self._head.clear()
        try:
            if not end:
                raise _BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            self._answer(parse_request(head))
        except _BadRequest as error:
            self._respond(_error(error.status), with_body=True)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection is gone."""
        self._factory.closed(self)
        waits_for, self._waits_for = self._waits_for, None
        if waits_for is not None:
            waits_for.cancel()
        self._sender = None
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        """End the connection, whether or not its response has been sent."""
        self._transport.abortConnection()

    def _answer(self, request: _Request) -> None:
        page = self._factory.pages.get(request.path)
        if page is None:
            raise _BadRequest(HTTPStatus.NOT_FOUND)
        with_body = request.method != b"HEAD"
        try:
            response = page()
        except Exception:
            log.failure("the page {path} failed", path=request.path)
            raise _BadRequest(HTTPStatus.INTERNAL_SERVER_ERROR) from None
        if isinstance(response, Later):
            self._waits_for = response
            response.then(
                lambda response: self._ready(response, with_body=with_body),
                lambda error: self._failed(request.path, error),
            )
        else:
            self._respond(response, with_body=with_body)

    def _ready(self, response: Response, *, with_body: bool) -> None:
        if self._waits_for is not None:
            self._waits_for = None
            self._respond(response, with_body=with_body)

    def _failed(self, path: str, error: Exception) -> None:
        if self._waits_for is not None:
            self._waits_for = None
            failure = Failure(error, type(error), error.__traceback__)
            log.failure("the page {path} failed", failure, path=path)
            self._respond(_error(HTTPStatus.INTERNAL_SERVER_ERROR), with_body=True)

    def _respond(self, response: Response, *, with_body: bool) -> None:
        status, content_type, body = response
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "Connection: close",
        ]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, HEAD")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        if not with_body:
            body = b""
        if len(body) <= PIECE_BYTES:
            self._transport.write(head + body)
            self._sent()
            return
        self._transport.write(head)
        self._sender = _Sender(self._transport, body, self._sent)
        self._transport.registerProducer(self._sender, False)

    def _sent(self) -> None:
        self._sender = None
        self._transport.loseWriteConnection()
        self._close_after(DISCARD_MAX_MS, None)

    def _close_after(self, delay_ms: float, what: str | None) -> None:
        """End the connection then; `what` is worth a log line."""

        def close() -> None:
            self._deadline = None
            if what is not None:
                self._factory.report(self.host, what)
            self.abort()

        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._factory.timers.call_later(delay_ms, close)


@implementer(IPullProducer)
class _Sender:
    """Sends a long body piece by piece."""

    def __init__(self, transport: Any, body: bytes, on_sent: Callable[[], None]) -> None:
        self._transport = transport
        self.body = body
        self._position = 0
        self._on_sent = on_sent

    def resumeProducing(self) -> None:
        """The transport takes more."""
        piece = self.body[self._position : self._position + PIECE_BYTES]
        self._position += len(piece)
        self._transport.write(piece)
        if self._position == len(self.body):
            self._transport.unregisterProducer()
            self._on_sent()

    def stopProducing(self) -> None:
        """The connection is gone."""


def parse_request(head: bytes) -> _Request:
    """The request of a head without its last empty line. Raises _BadRequest.

    >>> parse_request(b"GET /metrics?x=1 HTTP/1.1\\r\\nHost: x")
    _Request(method=b'GET', path='/metrics')
    """
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise _BadRequest(HTTPStatus.BAD_REQUEST)
    method, target, _ = words
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name.strip():
            raise _BadRequest(HTTPStatus.BAD_REQUEST)
        announces_body = name.strip().lower() in (b"content-length", b"transfer-encoding")
        if announces_body and value.strip() != b"0":
            raise _BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    if method not in (b"GET", b"HEAD"):
        raise _BadRequest(HTTPStatus.METHOD_NOT_ALLOWED)
    path = target.partition(b"?")[0].decode("latin-1")
    if "://" in path:  # As a proxy is asked.
        path = "/" + path.partition("://")[2].partition("/")[2]
    return _Request(method, path.rstrip("/") or "/")


def _error(status: HTTPStatus) -> Response:
    return Response(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode())
