"""Listeners: opening ports, accepting and rejecting clients."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.error import CannotListenError

from plogd.config.listener import Listener
from plogd.net.listener_port import ACCEPT_PAUSE_MS, plain_host
from plogd.net.listeners import Listeners
from tests.helpers.net_parts import (
    METADATA,
    Pump,
    ScriptedDispatch,
    frame,
    make_connections,
    open_all,
    response,
)
from tests.helpers.sim.sim_ports import SimPorts


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def resolving(addresses: list[Any]) -> Any:
    """Return a getaddrinfo for names ending in ``.test``, by family and address."""
    real = socket.getaddrinfo

    def resolve(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        if not host.endswith(".test"):
            return real(host, port, *args, **kwargs)
        return [
            (family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in addresses
        ]

    return resolve


def listener(host: str = "127.0.0.1", port: int = 0, name: str = "PLAINTEXT") -> Listener:
    return Listener(name=name, host=host, port=port, protocol="PLAINTEXT")


class Harness:
    """Listeners with their own reactor."""

    def __init__(self, **settings: Any) -> None:
        self.pump = Pump()
        self.ports = SimPorts()
        self.dispatch = ScriptedDispatch()
        self.shared = make_connections(self.dispatch, self.ports, **settings)
        self.listeners = Listeners(self.pump.reactor, self.shared)
        self.clients: list[socket.socket] = []

    def connect(self, port: int, host: str = "127.0.0.1") -> socket.socket:
        client = socket.create_connection((host, port))
        self.clients.append(client)
        return client

    def exchange(self, client: socket.socket) -> None:
        client.sendall(frame(METADATA, "hello"))
        expected = response("hello")
        assert self.pump.exchange(client, len(expected), self.ports) == expected

    def close(self) -> None:
        for client in self.clients:
            client.close()
        closed: list[Any] = []
        self.listeners.close().addBoth(closed.append)
        self.shared.abort_all()
        self.pump.until(lambda: closed and not len(self.shared), self.ports)
        self.listeners.release()
        self.pump.close()


@pytest.fixture
def make_harness() -> Iterator[Any]:
    harnesses: list[Harness] = []

    def make(**settings: Any) -> Harness:
        harnesses.append(Harness(**settings))
        return harnesses[-1]

    yield make
    for harness in harnesses:
        harness.close()


def test_port_0_opens_a_free_port(make_harness: Any) -> None:
    harness = make_harness()
    [bound] = open_all(harness.listeners, [listener()])
    assert bound.port > 0
    assert str(bound) == f"127.0.0.1:{bound.port}"
    harness.exchange(harness.connect(bound.port))


def test_context_has_both_addresses(make_harness: Any) -> None:
    harness = make_harness()
    bound = open_all(harness.listeners, [listener(), listener(name="OTHER")])
    client = harness.connect(bound[1].port)
    harness.exchange(client)
    [context] = harness.dispatch.contexts
    assert context.listener_name == "OTHER"
    assert context.security_protocol == "PLAINTEXT"
    assert context.client_address == client.getsockname()
    assert context.local_address == ("127.0.0.1", bound[1].port)


@needs_ipv6
def test_empty_host_accepts_ipv4_and_ipv6_clients(make_harness: Any) -> None:
    harness = make_harness()
    [bound] = open_all(harness.listeners, [listener(host="")])
    assert str(bound) == f"*:{bound.port}"
    harness.exchange(harness.connect(bound.port, "127.0.0.1"))
    harness.exchange(harness.connect(bound.port, "::1"))
    first, second = harness.dispatch.contexts
    assert first.client_address[0] == "127.0.0.1", "the usual notation"
    assert first.local_address[0] == "127.0.0.1"
    assert second.local_address[0] == "::1"


@needs_ipv6
def test_host_name_listens_on_all_its_addresses_with_one_port(
    make_harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make_harness()
    both = resolving([(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")])
    with monkeypatch.context() as patched:
        patched.setattr("plogd.net.listeners.socket.getaddrinfo", both)
        [bound] = open_all(harness.listeners, [listener(host="both.test")])
    harness.exchange(harness.connect(bound.port, "127.0.0.1"))
    harness.exchange(harness.connect(bound.port, "::1"))


@needs_ipv6
def test_ipv4_and_ipv6_listener_may_share_a_port(make_harness: Any) -> None:
    harness = make_harness()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    open_all(
        harness.listeners, [listener("::", port, "PLAINTEXT"), listener("0.0.0.0", port, "OTHER")]
    )
    harness.exchange(harness.connect(port, "127.0.0.1"))
    harness.exchange(harness.connect(port, "::1"))
    names = [context.listener_name for context in harness.dispatch.contexts]
    assert names == ["OTHER", "PLAINTEXT"]


def test_unavailable_address_is_skipped_if_the_name_has_another(
    make_harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make_harness()
    away, here = (socket.AF_INET, "192.0.2.1"), (socket.AF_INET, "127.0.0.1")
    monkeypatch.setattr("plogd.net.listeners.socket.getaddrinfo", resolving([away, here]))
    [bound] = open_all(harness.listeners, [listener(host="here.test")])
    assert bound.port > 0
    monkeypatch.undo()
    monkeypatch.setattr("plogd.net.listeners.socket.getaddrinfo", resolving([away]))
    with pytest.raises(CannotListenError):
        open_all(harness.listeners, [listener(host="away.test")])


def test_unknown_host_name_is_an_error(make_harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    harness = make_harness()
    monkeypatch.setattr("plogd.net.listeners.socket.getaddrinfo", fail)
    with pytest.raises(CannotListenError, match="not known"):
        open_all(harness.listeners, [listener(host="nowhere.test")])


def test_port_in_use_is_an_error_and_opens_no_listener(make_harness: Any) -> None:
    harness = make_harness()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListenError, match=str(port)):
            open_all(harness.listeners, [listener(), listener(port=port, name="OTHER")])
    harness.pump.until(lambda: len(harness.pump.reactor.getReaders()) == 1)


def test_bound_listener_refuses_clients_until_it_listens(make_harness: Any) -> None:
    harness = make_harness()
    [bound] = harness.listeners.bind([listener()])
    with pytest.raises(ConnectionRefusedError):
        harness.connect(bound.port)
    with pytest.raises(OSError, match="in use"), socket.socket() as other:
        other.bind(("127.0.0.1", bound.port))
    harness.listeners.listen()
    harness.exchange(harness.connect(bound.port))


def test_address_of_listeners_that_never_listened_is_free_again(make_harness: Any) -> None:
    harness = make_harness()
    [bound] = harness.listeners.bind([listener()])
    closed: list[Any] = []
    harness.listeners.close().addBoth(closed.append)
    harness.pump.until(lambda: closed, harness.ports)
    socket.create_server(("127.0.0.1", bound.port)).close()


def test_address_that_another_process_listens_on_first_is_an_error(make_harness: Any) -> None:
    first, second = make_harness(), make_harness()
    [bound] = first.listeners.bind([listener()])
    # With SO_REUSEADDR, two sockets can have an address as long as neither listens.
    second.listeners.bind([listener(name="OTHER"), listener(port=bound.port)])
    first.listeners.listen()
    with pytest.raises(CannotListenError, match=str(bound.port)):
        second.listeners.listen()
    second.pump.until(lambda: len(second.pump.reactor.getReaders()) == 1)
    first.exchange(first.connect(bound.port))


def test_tls_listener_without_a_context_is_rejected(make_harness: Any) -> None:
    tls = Listener(name="SSL", host="", port=0, protocol="SSL")
    with pytest.raises(ValueError, match="it has no TLS context"):
        open_all(make_harness().listeners, [tls])


def test_connection_over_the_limit_is_closed_immediately(make_harness: Any) -> None:
    harness = make_harness(max_connections_per_ip=1)
    [bound] = open_all(harness.listeners, [listener()])
    first = harness.connect(bound.port)
    harness.exchange(first)
    second = harness.connect(bound.port)
    harness.pump.end_of_stream(second, harness.ports)
    assert harness.shared.refused == 1
    harness.exchange(first)
    first.close()
    harness.pump.until(lambda: not len(harness.shared), harness.ports)
    harness.exchange(harness.connect(bound.port))


def test_accepting_pauses_and_resumes_when_descriptors_run_out(make_harness: Any) -> None:
    harness = make_harness()
    [bound] = open_all(harness.listeners, [listener()])
    first = harness.connect(bound.port)
    harness.exchange(first)
    second = harness.connect(bound.port)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        harness.pump.until(lambda: harness.ports.timers.next_due_ms is not None)
        harness.exchange(first)
        assert harness.shared.accepted == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    harness.ports.advance(ACCEPT_PAUSE_MS)
    harness.exchange(second)


def test_clients_wait_when_the_remaining_descriptors_are_reserved_for_logs(
    make_harness: Any,
) -> None:
    harness = make_harness()
    [bound] = open_all(harness.listeners, [listener()])
    budget = harness.shared.descriptors
    budget.set_limit(8, 8)  # One for the broker, two for logs.
    served = [harness.connect(bound.port) for _ in range(5)]
    for client in served:
        harness.exchange(client)
    waiting = harness.connect(bound.port)
    harness.pump.until(lambda: harness.ports.timers.next_due_ms is not None)
    assert harness.shared.accepted == 5
    served[0].close()
    harness.pump.until(lambda: len(harness.shared) == 4)
    harness.ports.advance(ACCEPT_PAUSE_MS)
    harness.exchange(waiting)


def test_client_that_disconnects_before_accept_is_ignored(
    make_harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make_harness()
    [bound] = open_all(harness.listeners, [listener()])
    [port] = harness.listeners._ports
    real, errors = port.socket, [errno.ECONNABORTED]

    class Listening:
        def accept(self) -> Any:
            if errors:
                number = errors.pop()
                raise OSError(number, os.strerror(number))
            return real.accept()

    with monkeypatch.context() as patched:
        patched.setattr(port, "socket", Listening())
        client = harness.connect(bound.port)
        harness.pump.until(lambda: harness.shared.accepted, harness.ports)
    harness.exchange(client)


@pytest.mark.parametrize("method", ["buildProtocol", "_context"])
def test_error_at_the_start_of_a_connection_closes_only_that_connection(
    make_harness: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    harness = make_harness()
    [bound] = open_all(harness.listeners, [listener()])

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(f"plogd.net.listener_port.ListenerFactory.{method}", fail)
        client = harness.connect(bound.port)
        harness.pump.end_of_stream(client, harness.ports)
    harness.exchange(harness.connect(bound.port))


def test_close_frees_the_port_and_keeps_connections(make_harness: Any) -> None:
    harness = make_harness()
    [bound] = open_all(harness.listeners, [listener()])
    client = harness.connect(bound.port)
    harness.exchange(client)
    closed: list[Any] = []
    harness.listeners.close().addBoth(closed.append)
    harness.pump.until(lambda: closed, harness.ports)
    assert closed == [None]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", bound.port))
    harness.exchange(client)


def test_socket_buffers_have_the_configured_sizes(make_harness: Any) -> None:
    harness = make_harness(socket_send_buffer_bytes=50_000, socket_receive_buffer_bytes=-1)
    open_all(harness.listeners, [listener()])
    [port] = harness.listeners._ports
    # The kernel doubles the value for its bookkeeping: socket(7).
    assert port.socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000


def test_accepted_socket_limits_the_unsent_bytes(make_harness: Any) -> None:
    harness = make_harness(plog_socket_unsent_max_bytes=50_000)
    [bound] = open_all(harness.listeners, [listener()])
    harness.exchange(harness.connect(bound.port))
    [connection] = harness.shared._open
    accepted = connection._wire.socket
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 50_000


def test_plain_host_keeps_ipv6_addresses() -> None:
    assert plain_host("fe80::1%eth0") == "fe80::1%eth0"
