"""Sockets from systemd: which listener gets them, what they must be, and how they are closed."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.error import CannotListenError

from plogd.config.listener import Listener
from plogd.net import passed_sockets
from plogd.net.listeners import Listeners
from plogd.net.passed_sockets import (
    PassedDescriptor,
    PassedSocket,
    SocketUnusable,
    match_sockets,
    restore_variables,
    take_passed_descriptors,
)
from tests.helpers.net_parts import (
    METADATA,
    LogLines,
    Pump,
    ScriptedDispatch,
    frame,
    make_connections,
    open_all,
    response,
)
from tests.helpers.sim.sim_ports import SimPorts
from tests.unit.net.test_listeners import listener, needs_ipv6

PID = 4711


@pytest.fixture
def open_sockets() -> Iterator[list[socket.socket]]:
    """The sockets that "systemd" holds open; closed after the test."""
    held: list[socket.socket] = []
    yield held
    for sock in held:
        sock.close()


@pytest.fixture
def listening(open_sockets: list[socket.socket]) -> Any:
    """A function that opens a listening socket and returns its descriptor and its port."""

    def listen(host: str = "127.0.0.1", port: int = 0, v6_only: bool = False) -> tuple[int, int]:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server(
            (host, port), family=family, dualstack_ipv6=":" in host and not v6_only
        )
        open_sockets.append(sock)
        # The broker's descriptor is a duplicate, as that of a process is of systemd's.
        return os.dup(sock.fileno()), int(sock.getsockname()[1])

    return listen


@pytest.fixture
def matched() -> Iterator[Any]:
    """`match_sockets`, whose sockets are closed after the test."""
    found: list[PassedSocket] = []

    def match(descriptors: list[tuple[str, int]], *listeners: Listener) -> list[PassedSocket]:
        passed = [PassedDescriptor(*each) for each in descriptors]
        found[:] = match_sockets(passed, listeners)
        return found

    yield match
    for each in found:
        each.sock.close()


def environment(**changes: str) -> dict[str, str]:
    return {"LISTEN_PID": str(PID), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "PLAINTEXT", **changes}


@pytest.fixture
def first_descriptor(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Two inheritable descriptors, as if they were 3 and 4."""
    read, write = os.pipe()
    base = max(read, write) + 50
    for index, descriptor in enumerate((read, write)):
        os.dup2(descriptor, base + index, inheritable=True)
        os.close(descriptor)
    monkeypatch.setattr(passed_sockets, "_FIRST_DESCRIPTOR", base)
    yield base
    for index in range(2):
        os.close(base + index)


def test_descriptors_have_the_names_of_the_socket_units(first_descriptor: int) -> None:
    variables = environment(LISTEN_FDS="2", LISTEN_FDNAMES="PLAINTEXT:SSL", PATH="/bin")
    assert take_passed_descriptors(variables, PID) == [
        ("PLAINTEXT", first_descriptor),
        ("SSL", first_descriptor + 1),
    ]


def test_child_processes_inherit_neither_variables_nor_descriptors(first_descriptor: int) -> None:
    variables = environment(PATH="/bin")
    assert os.get_inheritable(first_descriptor)
    take_passed_descriptors(variables, PID)
    assert variables == {"PATH": "/bin"}
    assert not os.get_inheritable(first_descriptor)


def test_descriptor_without_a_name_is_unknown(first_descriptor: int) -> None:
    variables = {"LISTEN_PID": str(PID), "LISTEN_FDS": "1"}
    assert take_passed_descriptors(variables, PID) == [("unknown", first_descriptor)]


def test_descriptors_for_another_process_are_ignored_with_a_warning(log_lines: LogLines) -> None:
    variables = environment(LISTEN_PID="17")
    assert take_passed_descriptors(variables, PID) == []
    assert not variables
    assert log_lines == [
        "ignored 1 sockets from systemd: they are for process 17, but this is process 4711; a"
        " script must start the broker with exec"
    ]


@pytest.mark.parametrize("count", ["", "0", "-1", "x", "1001", "²"])
def test_invalid_number_of_descriptors_is_ignored(count: str, log_lines: LogLines) -> None:
    assert take_passed_descriptors(environment(LISTEN_FDS=count), PID) == []
    assert not log_lines


def test_closed_descriptor_is_ignored_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    free = os.dup(0)
    os.close(free)
    monkeypatch.setattr(passed_sockets, "_FIRST_DESCRIPTOR", free)
    assert take_passed_descriptors(environment(), PID) == []
    assert log_lines == [f"ignored descriptor {free} from systemd: Bad file descriptor"]


def test_environment_without_sockets_is_left_alone(log_lines: LogLines) -> None:
    variables = {"PATH": "/bin"}
    assert take_passed_descriptors(variables, PID) == []
    assert variables == {"PATH": "/bin"}
    assert not log_lines


def test_variables_that_twisted_has_taken_are_restored() -> None:
    initial = b"PATH=/bin\0LISTEN_FDS=1\0LISTEN_PID=4711\0LISTEN_FDNAMES=A=B\0"
    variables = {"LISTEN_FDS": "2"}
    restore_variables(variables, initial)
    assert variables == {"LISTEN_FDS": "2", "LISTEN_PID": "4711", "LISTEN_FDNAMES": "A=B"}


def test_socket_belongs_to_the_listener_of_its_name(listening: Any, matched: Any) -> None:
    (first, port), (second, other_port) = listening(), listening()
    plain, other = listener(port=port), listener(port=other_port, name="OTHER")
    sockets = matched([("other", second), ("PLAINTEXT", first)], plain, other)
    assert [(each.listener, each.port) for each in sockets] == [(other, other_port), (plain, port)]
    assert [each.sock.fileno() for each in sockets] == [second, first]


def test_socket_from_systemd_does_not_block(listening: Any, matched: Any) -> None:
    descriptor, port = listening()
    assert os.get_blocking(descriptor)
    matched([("PLAINTEXT", descriptor)], listener(port=port))
    assert not os.get_blocking(descriptor)


def test_socket_of_an_unknown_name_is_closed_and_the_names_are_listed(
    listening: Any, matched: Any, log_lines: LogLines
) -> None:
    descriptor, _ = listening()
    names = [listener("0.0.0.0"), listener("::"), listener(name="OTHER", port=1)]
    assert matched([("plog-broker.socket", descriptor)], *names) == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert log_lines == [
        "closed the socket plog-broker.socket from systemd: no listener has this name; set"
        " FileDescriptorName= to one of PLAINTEXT, OTHER"
    ]


def test_other_port_than_the_listener_is_an_error(listening: Any) -> None:
    descriptor, port = listening()
    with pytest.raises(SocketUnusable) as refused:
        match_sockets([PassedDescriptor("PLAINTEXT", descriptor)], [listener(port=1)])
    assert str(refused.value) == (
        f"cannot use the socket PLAINTEXT from systemd: it listens on 127.0.0.1:{port}, but"
        " listeners contains PLAINTEXT://127.0.0.1:1; change ListenStream= or listeners"
    )


@pytest.mark.parametrize(
    ("socket_host", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "localhost"),
        ("127.0.0.1", "0.0.0.0"),
        ("127.0.0.1", ""),
        ("0.0.0.0", "0.0.0.0"),
        ("0.0.0.0", ""),
        pytest.param("::1", "::1", marks=needs_ipv6),
        pytest.param("::1", "::", marks=needs_ipv6),
        pytest.param("::", "::", marks=needs_ipv6),
        pytest.param("::", "", marks=needs_ipv6),
        pytest.param("::", "0.0.0.0", marks=needs_ipv6),
    ],
)
def test_address_that_the_listener_includes_is_accepted(
    listening: Any, matched: Any, socket_host: str, host: str
) -> None:
    descriptor, port = listening(socket_host)
    for configured in (port, 0):
        [passed] = matched([("PLAINTEXT", os.dup(descriptor))], listener(host, configured))
        assert (passed.host, passed.port) == (socket_host, port)
        passed.sock.close()
    os.close(descriptor)


@pytest.mark.parametrize(
    ("socket_host", "host", "address"),
    [
        ("0.0.0.0", "127.0.0.1", "0.0.0.0"),
        ("127.0.0.2", "127.0.0.1", "127.0.0.2"),
        ("127.0.0.1", "::", "127.0.0.1"),
        ("0.0.0.0", "::", "0.0.0.0"),
        pytest.param("::", "127.0.0.1", "[::]", marks=needs_ipv6),
        pytest.param("::", "localhost", "[::]", marks=needs_ipv6),
        pytest.param("::1", "0.0.0.0", "[::1]", marks=needs_ipv6),
    ],
)
def test_address_that_the_listener_does_not_include_is_an_error(
    listening: Any, socket_host: str, host: str, address: str
) -> None:
    """A socket on all addresses must not open a broker whose listener is for this host."""
    descriptor, port = listening(socket_host)
    with pytest.raises(SocketUnusable) as refused:
        match_sockets([PassedDescriptor("PLAINTEXT", descriptor)], [listener(host, port)])
    assert f"it listens on {address}:{port}, but listeners contains" in str(refused.value)


@needs_ipv6
def test_ipv6_only_socket_cannot_replace_all_ipv4_addresses(listening: Any) -> None:
    descriptor, port = listening("::", v6_only=True)
    with pytest.raises(SocketUnusable, match="it listens on"):
        match_sockets([PassedDescriptor("PLAINTEXT", descriptor)], [listener("0.0.0.0", port)])


@pytest.mark.parametrize(
    ("socket_host", "host"),
    [
        ("127.0.0.1", "0.0.0.0"),
        ("127.0.0.1", ""),
        pytest.param("::1", "::", marks=needs_ipv6),
    ],
)
def test_socket_with_only_some_addresses_of_its_listener_is_a_warning(
    listening: Any, matched: Any, log_lines: LogLines, socket_host: str, host: str
) -> None:
    descriptor, port = listening(socket_host)
    wanted = listener(host, port)
    [passed] = matched([("PLAINTEXT", descriptor)], wanted)
    assert log_lines == [
        f"listener {wanted} accepts clients only on {passed.address}, the sockets from systemd; for"
        " its other addresses, add ListenStream= lines"
    ]


@needs_ipv6
def test_several_sockets_of_one_name_are_the_addresses_of_the_listener(
    listening: Any, matched: Any, log_lines: LogLines
) -> None:
    four, port = listening("0.0.0.0")
    six, _ = listening("::", port, v6_only=True)
    both = [listener("0.0.0.0", port), listener("::", port)]
    sockets = matched([("PLAINTEXT", six), ("PLAINTEXT", four)], *both)
    assert [each.listener for each in sockets] == [both[1], both[0]]
    assert not log_lines


@needs_ipv6
def test_dual_stack_socket_serves_both_listeners_of_its_name(
    listening: Any, matched: Any, log_lines: LogLines
) -> None:
    descriptor, port = listening("::")
    matched([("PLAINTEXT", descriptor)], listener("0.0.0.0", port), listener("::", port))
    assert not log_lines


def _descriptor_of(kind: str, folder: Path) -> int:
    if kind == "pipe":
        read, write = os.pipe()
        os.close(write)
        return read
    if kind == "connection":
        with socket.create_server(("127.0.0.1", 0)) as server:
            return socket.create_connection(server.getsockname()).detach()
    family, type_ = {
        "unix": (socket.AF_UNIX, socket.SOCK_STREAM),
        "datagram": (socket.AF_INET, socket.SOCK_DGRAM),
    }[kind]
    sock = socket.socket(family, type_)
    sock.bind(str(folder / "socket") if kind == "unix" else ("127.0.0.1", 0))
    return sock.detach()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("pipe", "it is not a TCP socket; set ListenStream= to an IP address and a port"),
        ("unix", "it is not a TCP socket"),
        ("datagram", "it is not a TCP socket"),
        ("connection", "it is a connection, not a listening socket; remove Accept=yes"),
    ],
)
def test_descriptor_that_does_not_accept_tcp_clients_is_an_error(
    tmp_path: Path, kind: str, why: str
) -> None:
    descriptor = _descriptor_of(kind, tmp_path)
    with pytest.raises(SocketUnusable) as refused:
        match_sockets([PassedDescriptor("PLAINTEXT", descriptor)], [listener()])
    assert str(refused.value).startswith(f"cannot use the socket PLAINTEXT from systemd: {why}")


def test_unknown_host_name_of_the_listener_is_an_error(
    listening: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    descriptor, port = listening()
    monkeypatch.setattr(passed_sockets.socket, "getaddrinfo", fail)
    with pytest.raises(CannotListenError, match="not known"):
        match_sockets([PassedDescriptor("PLAINTEXT", descriptor)], [listener("no.test", port)])


class Broker:
    """Listeners that use a socket from systemd, with their own reactor."""

    def __init__(self, sock: socket.socket, *, host: str = "127.0.0.1", **settings: Any) -> None:
        self.pump, self.ports, self.dispatch = Pump(), SimPorts(), ScriptedDispatch()
        self.shared = make_connections(self.dispatch, self.ports, **settings)
        configured = [listener(host, sock.getsockname()[1]), listener(name="OTHER")]
        descriptor = PassedDescriptor("PLAINTEXT", os.dup(sock.fileno()))
        passed = match_sockets([descriptor], configured)
        self.listeners = Listeners(self.pump.reactor, self.shared, passed=passed)
        self.bound = open_all(self.listeners, configured)

    def exchange(self, client: socket.socket) -> None:
        client.sendall(frame(METADATA, "hello"))
        expected = response("hello")
        assert self.pump.exchange(client, len(expected), self.ports) == expected

    def close(self) -> None:
        closed: list[Any] = []
        self.listeners.close().addBoth(closed.append)
        self.shared.abort_all()
        self.pump.until(lambda: closed and not len(self.shared), self.ports)
        self.listeners.release()
        self.pump.close()


def test_listener_accepts_on_its_socket_and_the_others_are_opened(
    open_sockets: list[socket.socket],
) -> None:
    held = socket.create_server(("127.0.0.1", 0))
    open_sockets.append(held)
    broker = Broker(held)
    assert str(broker.bound[0]) == f"127.0.0.1:{held.getsockname()[1]}"
    for bound in broker.bound:
        with socket.create_connection(("127.0.0.1", bound.port)) as client:
            broker.exchange(client)
    names = [context.listener_name for context in broker.dispatch.contexts]
    assert names == ["PLAINTEXT", "OTHER"]
    broker.close()


@needs_ipv6
def test_bound_listener_shows_the_address_of_the_socket(
    open_sockets: list[socket.socket],
) -> None:
    all_addresses = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    one_address = socket.create_server(("127.0.0.1", 0))
    open_sockets += [all_addresses, one_address]
    for held, host in ((all_addresses, "*"), (one_address, "127.0.0.1")):
        broker = Broker(held, host="")
        assert str(broker.bound[0]) == f"{host}:{held.getsockname()[1]}"
        broker.close()


def test_client_waits_in_the_queue_until_the_next_broker_accepts(
    open_sockets: list[socket.socket],
) -> None:
    held = socket.create_server(("127.0.0.1", 0))
    open_sockets.append(held)
    first = Broker(held)
    first.close()
    with socket.create_connection(held.getsockname()) as client:
        second = Broker(held)
        second.exchange(client)
        second.close()


def test_client_that_connects_during_the_stop_is_not_accepted(
    open_sockets: list[socket.socket],
) -> None:
    held = socket.create_server(("127.0.0.1", 0))
    open_sockets.append(held)
    stopping, closed = Broker(held), []
    stopping.listeners.close().addBoth(closed.append)
    with socket.create_connection(held.getsockname()) as client:
        stopping.pump.until(lambda: closed, stopping.ports)
        assert stopping.shared.accepted == 0
        following = Broker(held)
        following.exchange(client)
        following.close()
    stopping.pump.close()


def test_socket_gets_the_configured_options(open_sockets: list[socket.socket]) -> None:
    held = socket.create_server(("127.0.0.1", 0), backlog=1)
    open_sockets.append(held)
    broker = Broker(
        held,
        socket_send_buffer_bytes=50_000,
        socket_receive_buffer_bytes=60_000,
        socket_listen_backlog_size=5,
    )
    assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert held.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    # The kernel doubles the values for its bookkeeping: socket(7).
    assert held.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000
    assert held.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 120_000
    # tcp_info of a listening socket: tcpi_sacked is the length of its queue.
    info = held.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    assert int.from_bytes(info[28:32], "little") == 5
    broker.close()
