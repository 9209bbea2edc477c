"""Poller: one epoll descriptor for the sockets of plain connections, below any reactor."""

from __future__ import annotations

import errno
import select
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet import main
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.python.failure import Failure

from plogd.net.poller import MAX_EVENTS, Poller
from plogd.ports import Turn
from tests.helpers.net_parts import (
    FETCH,
    METADATA,
    Pump,
    RefusingEpoll,
    frame,
    reactor_of,
    response,
)
from tests.helpers.sim.sim_ports import SimPorts
from tests.unit.net.test_transport import MIB, Broker


class Reactor:
    """Counts what it watches."""

    def __init__(self) -> None:
        self.readers: list[Any] = []
        self.calls: list[Callable[[], object]] = []

    def addReader(self, reader: Any) -> None:
        self.readers.append(reader)

    def removeReader(self, reader: Any) -> None:
        self.readers.remove(reader)

    def callLater(self, _: float, function: Callable[..., object], *arguments: Any) -> None:
        self.calls.append(lambda: function(*arguments))


class Transport:
    """One end of a socket pair; `peer` is the other end."""

    def __init__(self, site: Site, name: str, *, tcp: bool = False) -> None:
        self.name = name
        self.socket, self.peer = _tcp_pair() if tcp else socket.socketpair()
        self.socket.setblocking(False)
        self.on_read: Callable[[], Exception | None] = lambda: None
        self.on_write: Callable[[], Exception | None] = lambda: None
        self.lost: list[type[BaseException] | None] = []
        self._site = site

    def fileno(self) -> int:
        return self.socket.fileno()

    def doRead(self) -> Exception | None:
        self._site.calls.append(f"read {self.name}")
        self.socket.recv(100)
        return self.on_read()

    def doWrite(self) -> Exception | None:
        self._site.calls.append(f"write {self.name}")
        return self.on_write()

    def connectionLost(self, reason: Failure) -> None:
        self.lost.append(reason.type)
        self.close()

    def close(self) -> None:
        self._site.poller.removeReader(self)
        self._site.poller.removeWriter(self)
        self.socket.close()


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        return server.accept()[0], peer


class Site:
    """A poller, its transports, and the calls that they have received."""

    def __init__(self) -> None:
        self.ports = SimPorts()
        self.reactor = Reactor()
        self.turn = Turn(self.ports.timers)
        self.spent_ms: list[float] = []
        self.poller = Poller(self.reactor, self.turn, self.ports.clock, self.spent_ms.append)
        self.calls: list[str] = []
        self.transports: list[Transport] = []

    def add(self, name: str, *, tcp: bool = False) -> Transport:
        """Add a transport that reads."""
        transport = Transport(self, name, tcp=tcp)
        self.transports.append(transport)
        self.poller.addReader(transport)
        return transport

    @property
    def is_ready(self) -> bool:
        """Whether a reactor would call the poller."""
        return bool(select.select([self.poller], [], [], 0)[0])

    def round(self) -> list[str]:
        """Run a round, and return the calls."""
        self.calls.clear()
        self.poller.doRead()
        return list(self.calls)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.poller.connectionLost(Failure(main.CONNECTION_DONE))
    for transport in made.transports:
        transport.socket.close()
        transport.peer.close()


def test_reactor_watches_one_descriptor_for_all_sockets(site: Site) -> None:
    one, two = site.add("one"), site.add("two")
    assert site.reactor.readers == [site.poller]
    assert not site.is_ready
    two.peer.send(b"x")
    assert site.is_ready
    assert site.round() == ["read two"]
    one.peer.send(b"x")
    two.peer.send(b"x")
    assert sorted(site.round()) == ["read one", "read two"]
    assert not site.is_ready


def test_socket_is_watched_for_what_its_transport_wants(site: Site) -> None:
    one = site.add("one")
    site.poller.addWriter(one)
    assert site.round() == ["write one"]
    one.peer.send(b"x")
    assert site.round() == ["read one", "write one"]
    site.poller.removeWriter(one)
    one.peer.send(b"x")
    assert site.round() == ["read one"]
    site.poller.removeReader(one)
    one.peer.send(b"x")
    assert not site.is_ready
    site.poller.addReader(one)
    assert site.round() == ["read one"]


def test_transport_that_wants_nothing_is_not_reported_when_its_peer_leaves(site: Site) -> None:
    one = site.add("one")
    site.poller.removeReader(one)
    one.peer.close()
    assert not site.is_ready
    site.poller.addReader(one)
    assert site.is_ready


def test_calls_deferred_in_a_round_run_at_its_end(site: Site) -> None:
    """Responses are sent then, after all requests were read."""
    for name in ("one", "two"):
        transport = site.add(name)
        transport.peer.send(b"x")

        def read(name: str = name) -> None:
            site.turn.at_end(lambda: site.calls.append(f"send {name}"))

        transport.on_read = read
    calls = site.round()
    assert sorted(calls[:2]) == ["read one", "read two"]
    assert sorted(calls[2:]) == ["send one", "send two"]


@pytest.mark.parametrize("reads", [True, False])
def test_hang_up_ends_the_connection(site: Site, reads: bool) -> None:
    one = site.add("one")
    one.on_read = lambda: main.CONNECTION_DONE
    if not reads:
        site.poller.removeReader(one)
        site.poller.addWriter(one)
    one.peer.close()
    site.round()
    assert one.lost == [ConnectionDone if reads else ConnectionLost]
    assert not site.is_ready


@pytest.mark.parametrize("reads", [True, False])
def test_reset_ends_the_connection(site: Site, reads: bool) -> None:
    """A reset of TCP is reported as EPOLLERR and EPOLLHUP, and as EPOLLIN to a reader."""
    one = site.add("one", tcp=True)
    if not reads:
        site.poller.removeReader(one)
        site.poller.addWriter(one)
    one.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.peer.close()
    assert site.round() == (["read one"] if reads else [])
    # The read fails with ECONNRESET, like any other error of a transport.
    assert one.lost == [ConnectionResetError if reads else ConnectionLost]
    assert not site.is_ready


def test_peer_that_has_finished_sending_is_read_and_still_written_to(site: Site) -> None:
    """EPOLLRDHUP is not requested: `doRead` finds the end of the stream, and responses follow."""
    one = site.add("one", tcp=True)
    one.peer.sendall(b"x")
    one.peer.shutdown(socket.SHUT_WR)
    assert site.round() == ["read one"]
    assert site.round() == ["read one"]  # Reads no bytes.
    site.poller.removeReader(one)
    assert not site.is_ready
    site.poller.addWriter(one)
    assert site.round() == ["write one"]
    one.socket.send(b"y")
    assert (one.peer.recv(10), one.lost) == (b"y", [])


def test_error_of_one_transport_closes_only_this_one(site: Site) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a bug")

    one, two = site.add("one"), site.add("two")
    one.on_read = fail
    for transport in (one, two):
        transport.peer.send(b"x")
    assert sorted(site.round()) == ["read one", "read two"]
    assert (one.lost, two.lost) == ([ZeroDivisionError], [])
    two.peer.send(b"x")
    assert site.round() == ["read two"]


def test_error_of_a_deferred_call_keeps_the_poller(site: Site) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a bug")

    one, two = site.add("one"), site.add("two")
    for transport in (one, two):
        transport.on_read = lambda: site.turn.at_end(fail)
        transport.peer.send(b"x")
    assert sorted(site.round()) == ["read one", "read two"]
    one.on_read = lambda: None
    one.peer.send(b"x")
    assert site.round() == ["read one"]
    assert (one.lost, two.lost) == ([], [])


def test_reactor_that_stops_closes_all_connections(site: Site) -> None:
    one, two = site.add("one"), site.add("two")
    site.poller.connectionLost(Failure(main.CONNECTION_LOST))
    assert (one.lost, two.lost) == ([ConnectionLost], [ConnectionLost])


def test_error_of_the_kernel_keeps_the_poller(site: Site) -> None:
    class Failing:
        def poll(self, *_: object) -> object:
            raise MemoryError

    one = site.add("one")
    one.peer.send(b"x")
    epoll, site.poller._epoll = site.poller._epoll, Failing()  # type: ignore[assignment]
    assert site.round() == []
    site.poller._epoll = epoll
    assert site.round() == ["read one"]
    assert one.lost == []


def refuse(site: Site, name: str, error: int) -> select.epoll:
    """Let the calls of one method of epoll fail; return the instance that works."""
    epoll = site.poller._epoll
    site.poller._epoll = RefusingEpoll(epoll, name, error)  # type: ignore[assignment]
    return epoll


def test_socket_that_the_kernel_does_not_watch_is_closed(site: Site) -> None:
    """For example, because fs.epoll.max_user_watches is reached."""
    other = site.add("other")
    epoll = refuse(site, "register", errno.ENOSPC)
    refused = [site.add("one"), site.add("two")]
    site.poller._epoll = epoll
    assert [one.lost for one in refused] == [[], []]
    for call in site.reactor.calls:
        call()
    assert [one.lost for one in refused] == [[OSError], [OSError]]
    other.peer.send(b"x")
    assert site.round() == ["read other"]


def test_paused_socket_that_the_kernel_does_not_watch_again_is_closed(site: Site) -> None:
    one = site.add("one")
    site.poller.removeReader(one)
    epoll = refuse(site, "register", errno.ENOMEM)
    site.poller.addReader(one)
    site.poller._epoll = epoll
    [call] = site.reactor.calls
    call()
    assert one.lost == [OSError]


def test_descriptor_that_cannot_be_removed_does_not_delay_the_round(site: Site) -> None:
    names = ["one", "two", "three"]
    transports = [site.add(name) for name in names]
    del site.poller._transport_by_fd[transports[0].fileno()]
    refuse(site, "unregister", errno.EBADF)
    for transport in transports:
        transport.peer.send(b"x")
    assert sorted(site.round()) == ["read three", "read two"]
    del site.poller._fd_by_transport[transports[0]]


def test_descriptor_without_a_transport_is_removed(site: Site) -> None:
    one = site.add("one")
    fd = one.fileno()
    del site.poller._transport_by_fd[fd]
    one.peer.send(b"x")
    assert site.round() == []
    assert not site.is_ready


def test_error_of_a_lost_transport_is_logged(site: Site) -> None:
    def fail(_: Failure) -> None:
        raise ZeroDivisionError("a bug")

    one, two = site.add("one"), site.add("two")
    one.connectionLost = fail  # type: ignore[method-assign]
    one.on_read = lambda: main.CONNECTION_DONE
    for transport in (one, two):
        transport.peer.send(b"x")
    assert sorted(site.round()) == ["read one", "read two"]


def test_hang_up_without_bytes_ends_a_connection_that_reads(site: Site) -> None:
    one = site.add("one")
    site.poller._serve(one, one.fileno(), select.EPOLLHUP)
    assert one.lost == [ConnectionDone]


def test_end_of_a_round_counts_as_time_spent(site: Site) -> None:
    one = site.add("one")
    clock = site.ports.clock
    one.on_read = lambda: site.turn.at_end(lambda: clock.advance_to(clock.monotonic_ms() + 7))
    one.peer.send(b"x")
    site.round()
    assert site.spent_ms == [7]


def test_transport_that_closes_in_its_read_is_not_written_to(site: Site) -> None:
    one = site.add("one")
    site.poller.addWriter(one)
    one.peer.send(b"x")
    one.on_read = one.close
    assert site.round() == ["read one"]
    assert one.lost == []


def test_event_of_a_closed_socket_does_not_reach_its_successor(site: Site) -> None:
    first, second = site.add("first"), site.add("second")
    replaced: list[Transport] = []

    def replace(other: Transport) -> None:
        """Close the other transport; the kernel gives its descriptor to the new one."""
        fd = other.fileno()
        other.close()
        replaced.append(site.add("new"))
        assert replaced[0].fileno() == fd

    first.on_read = lambda: replace(second)
    second.on_read = lambda: replace(first)
    for transport in (first, second):
        transport.peer.send(b"x")
    assert len(site.round()) == 1
    replaced[0].peer.send(b"x")
    assert site.round() == ["read new"]


def test_rounds_are_limited_and_serve_every_socket_in_turn(site: Site) -> None:
    for number in range(3 * MAX_EVENTS):
        site.add(str(number)).peer.send(b"xx")
    served = [site.round() for _ in range(3)]
    assert {len(calls) for calls in served} == {MAX_EVENTS}
    assert len({call for calls in served for call in calls}) == 3 * MAX_EVENTS


def test_closed_poller_is_not_watched(site: Site) -> None:
    site.poller.release()
    assert site.reactor.readers == []
    assert site.poller.fileno() == -1


@pytest.mark.parametrize("kind", ["select", "poll", "epoll", "asyncio"])
def test_any_reactor_can_watch_it(kind: str) -> None:
    reactor = reactor_of(kind)
    site = Site()
    site.poller.release()
    site.poller = Poller(reactor, site.turn, site.ports.clock, site.spent_ms.append)
    one = site.add("one")
    for number in range(3):
        one.peer.send(b"x")
        for _ in range(1000):
            reactor.iterate(0.01)
            if len(site.calls) > number:
                break
    assert site.calls == ["read one"] * 3
    one.close()
    one.peer.close()
    site.poller.release()
    reactor.removeAll()


@pytest.mark.parametrize("kind", ["select", "poll", "asyncio"])
def test_connections_need_no_epoll_reactor(kind: str) -> None:
    pump = Pump(reactor_of(kind))
    broker = Broker(pump, socket_send_buffer_bytes=1 << 14)
    try:
        clients = [broker.connect() for _ in range(5)]
        for client in clients:
            client.sendall(frame(METADATA, "a") + frame(FETCH, "b" * MIB))
        for client in clients:  # They are full in turn, so the poller waits until they can write.
            broker.exchange(client, response("a") + response("b" * MIB))
        clients[0].close()
        broker.until(lambda: len(broker.shared) == 4)
    finally:
        broker.close()
        pump.close()
