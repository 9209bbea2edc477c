"""A small HTTP server for read-only pages: GET and HEAD, one request per connection.

The server answers the first request on a connection and then closes the connection, so a client
that pipelines thousands of requests gets one response. It rejects a request with a body before
reading the body. The number and duration of connections and the size of request heads are limited.
A response is copied to the socket in pieces, as the client reads it.

site.py defines the pages. Reactor thread only. Source: RFC 9112; nginx's ``lingering_close``.
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

# Monitoring needs one or two connections; clients must not use up the file descriptors.
CONNECTIONS_MAX: Final = 32
"""Beyond this number, a new connection replaces the oldest one."""
CONNECTION_MAX_MS: Final = 30_000.0
"""Maximum duration of a connection, from its start to its last byte."""
DISCARD_MAX_MS: Final = 5_000.0  # nginx's default for lingering_timeout.
"""Maximum time for which input is discarded after the response."""
HEAD_MAX_BYTES: Final = 16 * 1024
PIECE_BYTES: Final = 64 * 1024
_PEER_LOG_INTERVAL_S: Final = 60.0


class Response(NamedTuple):
    """The response for a page."""

    status: HTTPStatus
    content_type: str
    body: bytes


Page: TypeAlias = Callable[[], "Response | Later[Response]"]


class _BadRequest(Exception):
    """Raised for a request that gets an error response."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class _Request(NamedTuple):
    method: bytes
    path: str
    query: str = ""


class HttpFactory(Factory):
    """The connections to one HTTP port.

    Args:
        pages: the pages by path, or by path and query parameter, such as ``/ready?in-sync``.
            Other parameters are ignored.
        seconds: the clock for rate-limiting log lines.
    """

    # Otherwise, Twisted logs a line when the port is opened and another when it is closed.
    noisy = False

    def __init__(
        self, pages: Mapping[str, Page], timers: Timers, seconds: Callable[[], float]
    ) -> None:
        self.pages = pages
        self.timers = timers
        self._seconds = seconds
        # A dict keeps the order of insertion, which a set does not.
        self._open: dict[HttpConnection, None] = {}
        self._peer_log = RateLimit(_PEER_LOG_INTERVAL_S)

    def buildProtocol(self, addr: IAddress | None) -> HttpConnection:
        """Return a connection; abort the oldest connection if there are too many."""
        if len(self._open) >= CONNECTIONS_MAX:
            # If new connections were rejected instead, idle ones could block the port for 30 s.
            oldest = next(iter(self._open))
            self.report(
                oldest.host, f"was the oldest of {CONNECTIONS_MAX}, in order to accept a new one"
            )
            oldest.abort()
            # `abort` takes effect later, and the next client must not abort the same connection
            # again.
            self.closed(oldest)
        return HttpConnection(self)

    def opened(self, connection: HttpConnection) -> None:
        """Add a new connection."""
        self._open[connection] = None

    def closed(self, connection: HttpConnection) -> None:
        """Remove a connection that is closed or about to be closed."""
        self._open.pop(connection, None)

    def open_connections(self) -> list[HttpConnection]:
        """Return the open connections, oldest first."""
        return list(self._open)

    def report(self, host: str, why: str) -> None:
        """Log why a connection was closed, at most once a minute per host and reason."""
        if self._peer_log.admit((host, why), self._seconds()) is not None:
            text = "{client}: closed a connection to plog.http.port that {why}"
            log.warn(text, client=host, why=why)


class HttpConnection(Protocol):
    """A connection that serves one request."""

    def __init__(self, factory: HttpFactory) -> None:
        self._factory = factory
        self._transport: Any = None  # Twisted's type for it lacks most of its methods.
        self._head = bytearray()
        self._has_request = False
        self._waits_for: Later[Response] | None = None
        self._sender: _Sender | None = None
        self._deadline: Timer | None = None
        self.host = ""

    @property
    def sending(self) -> bytes | None:
        """Return the body that is being sent, or None."""
        return None if self._sender is None else self._sender.body

    def connectionMade(self) -> None:
        """Start the connection timeout."""
        self._transport = self.transport
        self.host = getattr(self._transport.getPeer(), "host", "")
        self._factory.opened(self)
        self._close_after(CONNECTION_MAX_MS, "lasted longer than 30 s")

    def dataReceived(self, data: bytes) -> None:
        """Handle bytes of the request; discard bytes after it."""
        if self._has_request:
            return
        # Otherwise, the server would wait for the end of a head that never arrives, and the client
        # would wait for a response.
        mistake = None if self._head else mistake_in(data)
        if mistake is not None:
            self._has_request = True
            self._factory.report(self.host, f"sent {mistake}")
            # Without a response, because a client of another protocol cannot read it.
            self._transport.loseConnection()
            return
        self._head += data
        # The empty line that ends the head does not count, so four more bytes are searched.
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
        """Cancel the page and the timeout of the closed connection."""
        self._factory.closed(self)
        waits_for, self._waits_for = self._waits_for, None
        if waits_for is not None:
            waits_for.cancel()
        self._sender = None
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        """Close the connection without sending the rest of its response."""
        self._transport.abortConnection()

    def _answer(self, request: _Request) -> None:
        page = self._factory.pages.get(request.path)
        for parameter in request.query.split("&"):
            name = parameter.partition("=")[0]
            page = self._factory.pages.get(f"{request.path}?{name}", page)
        if page is None:
            raise _BadRequest(HTTPStatus.NOT_FOUND)
        with_body = request.method != b"HEAD"
        try:
            response = page()
        except Exception:
            log.failure("page {path} failed", path=request.path)
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
        # The client may have disconnected while the page was created.
        if self._waits_for is not None:
            self._waits_for = None
            self._respond(response, with_body=with_body)

    def _failed(self, path: str, error: Exception) -> None:
        if self._waits_for is not None:
            self._waits_for = None
            failure = Failure(error, type(error), error.__traceback__)
            log.failure("page {path} failed", failure, path=path)
            self._respond(_error(HTTPStatus.INTERNAL_SERVER_ERROR), with_body=True)

    def _respond(self, response: Response, *, with_body: bool) -> None:
        status, content_type, body = response
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            # An old metric or health status must not come from a cache.
            "Cache-Control: no-store",
            # Otherwise, HTTP/1.1 clients keep the connection for their next request.
            "Connection: close",
        ]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            # RFC 9110 requires this header in a 405 response.
            lines.append("Allow: GET, HEAD")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        # A response to HEAD has the Content-Length of the response to GET.
        if not with_body:
            body = b""
        if len(body) <= PIECE_BYTES:
            self._transport.write(head + body)
            self._sent()
            return
        self._transport.write(head)
        self._sender = _Sender(self._transport, body, self._sent)
        # A pull producer: the transport asks for a piece only when it has sent the last one.
        self._transport.registerProducer(self._sender, False)

    def _sent(self) -> None:
        self._sender = None
        # Closing with unread input would reset the connection, and the client could lose the
        # response. So only the write side is closed now, and input is discarded for a few seconds.
        self._transport.loseWriteConnection()
        self._close_after(DISCARD_MAX_MS, None)

    def _close_after(self, delay_ms: float, why: str | None) -> None:
        """Close the connection after `delay_ms`, and log `why` unless it is None."""

        def close() -> None:
            self._deadline = None
            if why is not None:
                self._factory.report(self.host, why)
            self.abort()

        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._factory.timers.call_later(delay_ms, close)


@implementer(IPullProducer)
class _Sender:
    """Sends a long body in pieces."""

    def __init__(self, transport: Any, body: bytes, on_sent: Callable[[], None]) -> None:
        self._transport = transport
        self.body = body
        self._position = 0
        self._on_sent = on_sent

    def resumeProducing(self) -> None:
        """Send the next piece."""
        piece = self.body[self._position : self._position + PIECE_BYTES]
        self._position += len(piece)
        self._transport.write(piece)
        if self._position == len(self.body):
            self._transport.unregisterProducer()
            self._on_sent()

    def stopProducing(self) -> None:
        """Do nothing: the connection is closed."""


def parse_request(head: bytes) -> _Request:
    """Parse a request head without its final empty line. Raises _BadRequest.

    >>> parse_request(b"GET /metrics?x=1 HTTP/1.1\\r\\nHost: x")
    _Request(method=b'GET', path='/metrics', query='x=1')
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
    # Latin-1 decodes any bytes, so an invalid path is merely unknown.
    path, _, query = target.decode("latin-1").partition("?")
    if "://" in path:  # The absolute form, which clients send to a proxy.
        path = "/" + path.partition("://")[2].partition("/")[2]
    return _Request(method, path.rstrip("/") or "/", query)


def _error(status: HTTPStatus) -> Response:
    return Response(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode())
