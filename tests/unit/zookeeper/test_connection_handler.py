"""The handler of kazoo's connection notices a server that hangs, although requests are sent."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

pytest.importorskip("kazoo")
from plog.zookeeper.connection_handler import ConnectionHandler


class Connection:
    """A handler with a connection on which every wait for a response is too long."""

    def __init__(self) -> None:
        self.handler = ConnectionHandler(None)
        self.handler.session_begins(0)
        self.unanswered: list[object] = []
        self.handler.unanswered = self.unanswered
        self.ours, self.servers = socket.socketpair()
        self.wakes, self.wake = socket.socketpair()

    def wait(self) -> list[socket.socket]:
        """Wait as kazoo does; return what is ready."""
        ready: list[socket.socket] = self.handler.select([self.ours, self.wakes], [], [], 0)[0]
        return ready

    def close(self) -> None:
        for each in (self.ours, self.servers, self.wakes, self.wake):
            each.close()


@pytest.fixture
def connection() -> Iterator[Connection]:
    connection = Connection()
    yield connection
    connection.close()


def test_idle_connection_stays_open(connection: Connection) -> None:
    assert connection.wait() == []
    assert connection.wait() == []


def test_connection_without_a_response_ends(connection: Connection) -> None:
    connection.wait()
    connection.unanswered.append("request")
    with pytest.raises(connection.handler.timeout_exception):
        connection.wait()
    assert connection.handler.problem == "no response"


def test_further_requests_do_not_extend_the_wait_for_a_response(connection: Connection) -> None:
    connection.wait()
    connection.unanswered.append("request")
    # Another thread has made a request, as a heartbeat does.
    connection.wake.send(b"\0")
    with pytest.raises(connection.handler.timeout_exception):
        connection.wait()


def test_response_is_read_however_late_it_is(connection: Connection) -> None:
    connection.wait()
    connection.unanswered.append("request")
    connection.servers.send(b"response")
    assert connection.wait() == [connection.ours]


def test_wait_begins_with_a_request(connection: Connection) -> None:
    connection.handler.session_begins(60_000)
    connection.wait()
    connection.unanswered.append("request")
    assert connection.wait() == []
