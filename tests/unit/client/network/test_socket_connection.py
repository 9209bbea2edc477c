"""SocketConnection with brokers that fail, stay silent or send invalid responses."""

from __future__ import annotations

import socket

import pytest

from plog.client.network.socket_connection import ConnectionFailed, SocketConnection
from plog.errors import ErrorCode, RequestTimedOut
from plog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from plog.wire.schema import WireError
from tests.unit.client.scripted_broker import ScriptedBroker, Step, serve_versions


def _connect(port: int, *, timeout_s: float = 10.0) -> SocketConnection:
    return SocketConnection("127.0.0.1", port, timeout_s=timeout_s, client_id="test")


def _ask(connection: SocketConnection) -> ApiVersionsResponse:
    return connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)


def _assert_closed(connection: SocketConnection) -> None:
    with pytest.raises(ConnectionFailed, match="closed"):
        _ask(connection)
    connection.close()


def test_exchange_in_a_flexible_version() -> None:
    with ScriptedBroker([serve_versions()]) as broker:
        connection = _connect(broker.port)
        answer = connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 3)
        connection.close()
    assert answer.api_keys
    _assert_closed(connection)


def test_refused_connection_error_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}") as caught:
        _connect(port)
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
    assert caught.value.retriable


@pytest.mark.parametrize("answer", [b"", b"\0\0", b"\0\0\0\x64only a part"])
def test_broker_that_closes_breaks_the_connection(answer: bytes) -> None:
    with ScriptedBroker([lambda _: answer]) as broker:
        connection = _connect(broker.port)
        with pytest.raises(ConnectionFailed, match="closed by the broker"):
            _ask(connection)
    _assert_closed(connection)


def test_silent_broker_times_out() -> None:
    with ScriptedBroker([lambda _: None]) as broker:
        connection = _connect(broker.port, timeout_s=0.01)
        with pytest.raises(RequestTimedOut, match=r"did not respond within 0\.01 s"):
            _ask(connection)
    _assert_closed(connection)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400", b"\0\0\0\0", b"\xff\xff\xff\xff"])
def test_absurd_response_size_is_refused(answer: bytes) -> None:
    with ScriptedBroker([lambda _: answer]) as broker:
        connection = _connect(broker.port)
        with pytest.raises(ConnectionFailed, match="Kafka port"):
            _ask(connection)
    _assert_closed(connection)


def test_response_with_wrong_correlation_id_closes_the_connection() -> None:
    with ScriptedBroker([lambda _: b"\0\0\0\x0a" + b"\0\0\0\x63" + bytes(6)]) as broker:
        connection = _connect(broker.port)
        with pytest.raises(ConnectionFailed, match="sent response 99 instead of 1"):
            connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert not connection.is_open


CONFUSED: dict[str, Step] = {
    "without a whole header": lambda _: b"\0\0\0\x03" + bytes(3),
    "without a whole body": lambda _: b"\0\0\0\x05" + b"\0\0\0\x01" + b"\0",
}


@pytest.mark.parametrize("answer", CONFUSED)
def test_malformed_response_closes_the_connection(answer: str) -> None:
    with ScriptedBroker([CONFUSED[answer]]) as broker:
        connection = _connect(broker.port)
        with pytest.raises(WireError):
            _ask(connection)
        _assert_closed(connection)


def _send_until_it_fails(connection: SocketConnection) -> None:
    for _ in range(100):  # The kernel detects the closed peer after the first request.
        connection.send(ApiVersionsRequest(), 0)


def test_send_on_a_broken_connection_raises() -> None:
    with ScriptedBroker([]) as broker:
        connection = _connect(broker.port)
    with pytest.raises(ConnectionFailed, match="was lost"):
        _send_until_it_fails(connection)
    _assert_closed(connection)
