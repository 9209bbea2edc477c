"""The HTTP server: responses, and limits for clients that overload it."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from twisted.internet.error import ConnectionLost
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.python.failure import Failure

from plogd.http.http_server import (
    CONNECTION_MAX_MS,
    CONNECTIONS_MAX,
    DISCARD_MAX_MS,
    HEAD_MAX_BYTES,
    PIECE_BYTES,
    HttpFactory,
    Page,
    Response,
)
from plogd.ports import Later
from tests.helpers.http_client import HttpClient
from tests.helpers.sim.sim_ports import SimPorts

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Site:
    """A site with one page that counts its requests."""

    def __init__(self, page: Page | None = None) -> None:
        self.ports = SimPorts()
        self.asked = 0
        self.page = page or (lambda: Response(HTTPStatus.OK, "text/plain", b"text"))
        self.factory = HttpFactory(
            {"/": self._ask}, self.ports.timers, lambda: self.ports.clock.monotonic_ms() / 1000
        )

    def _ask(self) -> Response | Later[Response]:
        self.asked += 1
        return self.page()

    def connect(self, data: bytes = b"") -> HttpClient:
        client = HttpClient(self.factory)
        if data:
            client.send(data)
        return client


def test_page_is_served_and_the_connection_closes() -> None:
    client = Site().connect(GET)
    code, headers, body = client.response()
    assert (code, body) == (200, b"text")
    assert headers["content-length"] == "4"
    assert headers["connection"] == "close"
    assert client.transport.half_closed


def test_head_response_has_no_body_but_its_length() -> None:
    code, headers, body = Site().connect(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").response()
    assert (code, headers["content-length"], body) == (200, "4", b"")


def test_http_request_may_arrive_byte_by_byte() -> None:
    site = Site()
    client = site.connect()
    for position in range(len(GET)):
        assert site.asked == 0
        client.send(GET[position : position + 1])
    assert client.response()[0] == 200


def test_of_pipelined_requests_only_the_first_is_answered() -> None:
    site = Site()
    client = site.connect(GET * 20_000)
    client.send(GET * 20_000)
    assert site.asked == 1
    assert client.response()[2] == b"text"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST / HTTP/1.1", 405),
        (b"DELETE / HTTP/1.1", 405),
        (b"POST / HTTP/1.1\r\nContent-Length: 1000000000000", 413),
        (b"GET / HTTP/1.1\r\ncontent-length : 5", 413),
        (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked", 413),
        (b"GET /missing HTTP/1.1", 404),
        (b"GET /?query HTTP/1.0", 200),
        (b"GET http://host:1/ HTTP/1.1", 200),
        (b"GET / HTTP/1.1\r\nContent-Length: 0", 200),
        (b"GET /", 400),
        (b"GET / HTTP/2.0", 400),
        (b"nonsense", 400),
        (b"GET / HTTP/1.1\r\nno colon", 400),
        (b"", 400),
    ],
)
def test_request_is_answered_with_status(request_: bytes, status: int) -> None:
    assert Site().connect(request_ + b"\r\n\r\n").response()[0] == status


def test_request_body_is_not_read() -> None:
    site = Site()
    client = site.connect(b"POST / HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n")
    assert client.response()[0] == 413
    for _ in range(100):
        client.send(bytes(100_000))
    assert site.asked == 0
    assert not client.protocol._head


@pytest.mark.parametrize("flood", [b"X-A: b\r\n" * 10_000, b"a" * 100_000])
def test_endless_request_head_is_rejected(flood: bytes) -> None:
    client = Site().connect(b"GET / HTTP/1.1\r\n" + flood)
    assert client.response()[0] == 431
    client = Site().connect(b"GET / HTTP/1.1\r\n")
    for start in range(0, HEAD_MAX_BYTES + 1, 1000):
        client.send(flood[start : start + 1000])
    assert client.response()[0] == 431


def test_long_body_is_written_as_fast_as_the_client_reads() -> None:
    body = bytes(10 * PIECE_BYTES + 5)
    client = Site(lambda: Response(HTTPStatus.OK, "text/plain", body)).connect(GET)
    client.read_piece()
    assert len(client.transport.value()) < 2 * PIECE_BYTES
    assert not client.transport.half_closed
    assert client.response()[2] == body
    assert client.transport.half_closed


def test_silent_client_is_closed_with_a_log_line() -> None:
    site = Site()
    client = site.connect(GET[:10])
    with capturedLogs() as events:
        site.ports.advance(CONNECTION_MAX_MS - 1)
        client.send(GET[10:12])
        assert not client.transport.aborted
        site.ports.advance(2)
    assert client.transport.aborted
    [line] = [formatEvent(event) for event in events if event["log_level"] is LogLevel.warn]
    assert line == "192.0.2.7: closed a connection to plog.http.port that lasted longer than 30 s"


def test_client_that_does_not_read_is_closed() -> None:
    site = Site(lambda: Response(HTTPStatus.OK, "text/plain", bytes(10 * PIECE_BYTES)))
    client = site.connect(GET)
    site.ports.advance(CONNECTION_MAX_MS + 1)
    assert client.transport.aborted


def test_client_that_keeps_sending_is_closed_after_its_response() -> None:
    site = Site()
    client = site.connect(GET)
    site.ports.advance(DISCARD_MAX_MS - 1)
    client.send(b"more")
    assert not client.transport.aborted
    site.ports.advance(2)
    assert client.transport.aborted


def test_oldest_connection_is_aborted_when_there_are_too_many() -> None:
    site = Site()
    clients = [site.connect() for _ in range(CONNECTIONS_MAX)]
    assert not any(client.transport.aborted for client in clients)
    newest = site.connect(GET)
    assert newest.response()[0] == 200
    assert [client.transport.aborted for client in clients] == [True] + [False] * 31
    assert len(site.factory.open_connections()) == CONNECTIONS_MAX


def test_page_may_answer_later() -> None:
    later: Later[Response] = Later()
    client = Site(lambda: later).connect(GET)
    assert client.read() == b""
    later.succeed(Response(HTTPStatus.OK, "text/plain", b"late"))
    assert client.response()[2] == b"late"


def test_disconnected_client_gets_no_response() -> None:
    later: Later[Response] = Later()
    site = Site(lambda: later)
    client = site.connect(GET)
    client.protocol.connectionLost(Failure(ConnectionLost()))
    assert later.done
    assert site.factory.open_connections() == []
    assert site.ports.timers.next_due_ms is None
    assert client.read() == b""


@pytest.mark.parametrize("is_later", [False, True])
def test_failing_page_is_logged_and_answered_without_a_traceback(is_later: bool) -> None:
    later: Later[Response] = Later()

    def page() -> Later[Response]:
        if is_later:
            return later
        raise RuntimeError("secret")

    with capturedLogs() as events:
        client = Site(page).connect(GET)
        if is_later:
            later.fail(RuntimeError("secret"))
    code, _, body = client.response()
    assert code == 500
    assert b"secret" not in body
    assert any("log_failure" in event for event in events)
