"""An expiring session is renewed on its connection, without other requests in flight."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from plog.client.errors import AuthenticationFailed, ConnectionFailed
from plog.client.network.connection import Connection
from plog.client.network.node import Node
from plog.client.settings import ClientSettings
from plog.errors import ErrorCode
from plog.wire.messages import APIS
from plog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from plog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from plog.wire.messages.sasl_handshake import SaslHandshakeResponse
from plog.wire.schema import ApiMessage

T = TypeVar("T")
SETTINGS = ClientSettings.from_options(
    bootstrap_servers="x",
    security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="PLAIN",
    sasl_username="alice",
    sasl_password="secret",
)
SESSION_S = 100


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")


class FakeChannel:
    """A connection to a broker whose sessions last 100 s; counts log-ins."""

    address = "broker:9092"

    def __init__(self) -> None:
        self.is_open = True
        self.in_flight = 0
        self.log_ins = 0
        self.refuses = False

    async def ask(
        self, request: ApiMessage, response: type, version: int, *, timeout_s: float
    ) -> ApiMessage:
        if not self.is_open:
            raise ConnectionFailed("closed")
        if response is ApiVersionsResponse:
            keys = [
                ApiVersion(api_key=api.request.api_key, max_version=api.request.max_version)
                for api in APIS
            ]
            return ApiVersionsResponse(api_keys=keys)
        if isinstance(request, SaslAuthenticateRequest):
            assert self.in_flight == 0, "another request is in flight"
            self.log_ins += 1
            code = ErrorCode.SASL_AUTHENTICATION_FAILED if self.refuses else 0
            return SaslAuthenticateResponse(error_code=code, session_lifetime_ms=SESSION_S * 1000)
        return SaslHandshakeResponse()

    def close(self) -> None:
        self.is_open = False


class FakeSignal:
    """A signal that no task waits for."""

    is_set = False

    def set(self) -> None:
        self.is_set = True

    def clear(self) -> None:
        self.is_set = False


class FakeNetwork:
    """A clock that `sleep` advances; requests in flight are then answered."""

    runs_tasks = False

    def __init__(self) -> None:
        self.time_s = 1000.0
        self.channels: list[FakeChannel] = []

    def now_s(self) -> float:
        return self.time_s

    def random(self) -> float:
        return 0.5

    async def sleep(self, seconds: float) -> None:
        self.time_s += seconds
        for channel in self.channels:
            channel.in_flight = max(0, channel.in_flight - 1)

    async def connect(self, host: str, port: int, security: object, *, timeout_s: float) -> object:
        self.channels.append(FakeChannel())
        return self.channels[-1]

    def signal(self) -> FakeSignal:
        return FakeSignal()


@pytest.fixture
def network() -> FakeNetwork:
    """Return a new network."""
    return FakeNetwork()


def _node(network: FakeNetwork) -> Node:
    return Node(network, SETTINGS, None, 1, "broker", 9092)  # type: ignore[arg-type]


def _connected(node: Node) -> Connection:
    return _run(node.connected())


def test_long_session_is_not_renewed(network: FakeNetwork) -> None:
    node = _node(network)
    connection = _connected(node)
    network.time_s += 0.8 * SESSION_S
    assert node.open_connection is connection
    assert _connected(node) is connection
    assert network.channels[0].log_ins == 1


def test_expiring_session_is_renewed_after_pending_requests(network: FakeNetwork) -> None:
    node = _node(network)
    connection = _connected(node)
    network.time_s += 0.91 * SESSION_S
    network.channels[0].in_flight = 2
    assert node.open_connection is None, "no request may be sent until then"
    assert _connected(node) is connection
    assert network.channels[0].log_ins == 2
    assert node.open_connection is connection
    network.time_s += 0.91 * SESSION_S
    assert node.open_connection is None
    assert len(network.channels) == 1


def test_refused_renewal_closes_the_connection(network: FakeNetwork) -> None:
    node = _node(network)
    _connected(node)
    network.time_s += SESSION_S
    network.channels[0].refuses = True
    with pytest.raises(AuthenticationFailed):
        _connected(node)
    assert not network.channels[0].is_open
    assert _connected(node).is_open
    assert len(network.channels) == 2


def test_connection_lost_before_renewal_is_replaced(network: FakeNetwork) -> None:
    node = _node(network)
    _connected(node)
    network.time_s += SESSION_S
    network.channels[0].in_flight = 1
    network.channels[0].is_open = False
    assert _connected(node).is_open
    assert network.channels[0].log_ins == 1
    assert len(network.channels) == 2
