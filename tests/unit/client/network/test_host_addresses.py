"""Lookups of host names: their addresses, their errors and their timeout."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from plog.client.errors import ConnectionFailed
from plog.client.network import host_addresses
from plog.client.network.host_addresses import look_up_within
from plog.client.network.socket_connection import SocketConnection
from tests.unit.client.scripted_broker import ScriptedBroker


def _resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    infos = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    monkeypatch.setattr(host_addresses.socket, "getaddrinfo", lambda *_, **__: infos)


def test_look_up_ends_at_its_timeout_when_the_resolver_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    responds = threading.Event()

    def getaddrinfo(*_: Any, **__: Any) -> Any:
        responds.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(host_addresses.socket, "getaddrinfo", getaddrinfo)
    try:
        with pytest.raises(ConnectionFailed, match="cannot resolve broker"):
            SocketConnection("broker.test", 9092, timeout_s=0.01, client_id=None)
    finally:
        responds.set()


def test_each_address_of_a_name_is_returned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _resolve_to(monkeypatch, "192.0.2.2", "192.0.2.1", "192.0.2.2")
    assert look_up_within("broker.test", 9092, 10) == ["192.0.2.2", "192.0.2.1"]


def test_address_needs_no_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    _resolve_to(monkeypatch, "192.0.2.1")
    assert [look_up_within(host, 9092, 10) for host in ("127.0.0.1", "::1")] == [
        ["127.0.0.1"],
        ["::1"],
    ]


@pytest.mark.parametrize(
    ("host", "error", "text"),
    [
        ("missing.test", socket.gaierror(socket.EAI_NONAME, "no such name"), "9092: no such name"),
        ("a..b", UnicodeError("label empty or too long"), "'a..b' is not a host name"),
    ],
)
def test_name_without_an_address_is_an_error(
    monkeypatch: pytest.MonkeyPatch, host: str, error: Exception, text: str
) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(host_addresses.socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(ConnectionFailed, match=text):
        look_up_within(host, 9092, 10)


def test_next_address_is_tried_when_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedBroker([]) as broker:
        address = ("127.0.0.1", broker.port)
        connect = socket.create_connection
        tried: list[str] = []

        def create_connection(to: tuple[str, int], timeout: float) -> socket.socket:
            tried.append(to[0])
            if to[0] != "127.0.0.1":
                raise ConnectionRefusedError(111, "Connection refused")
            return connect(address, timeout)

        monkeypatch.setattr(socket, "create_connection", create_connection)
        monkeypatch.setattr(host_addresses, "look_up", lambda *_: ["192.0.2.1", "127.0.0.1"])
        SocketConnection("broker.test", broker.port, timeout_s=10, client_id=None).close()
    assert tried == ["192.0.2.1", "127.0.0.1"]
