"""WriteDrain on Twisted's own write buffer, and a producer that waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.abstract import FileDescriptor
from twisted.internet.defer import Deferred

from plog.client.errors import BufferExhausted, ConnectionFailed
from plog.client.network.write_drain import WriteDrain
from plog.wire.messages.metadata import MetadataRequest
from tests.unit.client.producer.producer_site import TOPIC, ready


class _Reactor:
    """A reactor that ignores registrations of descriptors."""

    def addWriter(self, descriptor: object) -> None:
        pass

    def removeWriter(self, descriptor: object) -> None:
        pass

    def removeReader(self, descriptor: object) -> None:
        pass


class Tcp(FileDescriptor):
    """Twisted's write buffer; `room` is the number of bytes that the system accepts."""

    def __init__(self) -> None:
        reactor: Any = _Reactor()
        super().__init__(reactor)
        self.connected = 1
        self.room = 0
        self.is_closed = False

    def writeSomeData(self, data: bytes) -> int:
        taken = min(len(data), self.room)
        self.room -= taken
        return taken

    def take(self, size: int) -> None:
        """Let the system accept `size` bytes."""
        self.room += size
        self.is_closed = self.doWrite() is not None


@pytest.fixture
def tcp() -> Tcp:
    return Tcp()


def outcomes_of(*departures: Deferred[None]) -> list[Any]:
    outcomes: list[Any] = []
    for each in departures:
        each.addBoth(lambda outcome: outcomes.append(getattr(outcome, "value", outcome)))
    return outcomes


def test_drain_fires_when_the_last_byte_is_written(tcp: Tcp) -> None:
    tcp.write(b"x" * 100_000)
    departures = WriteDrain(tcp)
    outcomes = outcomes_of(departures.of_all_written(1.0))
    for _ in range(9):
        tcp.take(11_111)
        assert outcomes == []
    assert len(departures) == 1
    tcp.take(1)
    assert outcomes == [None]
    assert len(departures) == 0


def test_drain_distinguishes_later_writes(tcp: Tcp) -> None:
    departures = WriteDrain(tcp)
    for size in (10, 70_000):
        tcp.write(bytes(size))
        outcomes = outcomes_of(departures.of_all_written(1.0))
        assert outcomes == []
        tcp.take(size)
        assert outcomes == [None]


def test_drain_callback_may_write(tcp: Tcp) -> None:
    departures = WriteDrain(tcp)
    tcp.write(b"first")
    first = departures.of_all_written(1.0)
    seconds: list[Any] = []

    def again(_: None) -> None:
        tcp.write(b"second")
        seconds.append(outcomes_of(departures.of_all_written(1.0)))

    first.addCallback(again)
    tcp.take(5)
    assert seconds == [[]]
    tcp.take(6)
    assert seconds == [[None]]


def test_cancelled_wait_is_not_fired(tcp: Tcp) -> None:
    departures = WriteDrain(tcp)
    tcp.write(b"x")
    gone = departures.of_all_written(1.0)
    outcomes = outcomes_of(gone)
    gone.cancel()
    tcp.take(1)
    assert len(outcomes) == 1


def test_lost_connection_fails_pending_writes(tcp: Tcp) -> None:
    departures = WriteDrain(tcp)
    tcp.write(b"x")
    outcomes = outcomes_of(departures.of_all_written(1.0), departures.of_all_written(2.0))
    assert departures.deadlines_s == [1.0, 2.0]
    departures.stop(lambda deadline_s: ConnectionFailed(f"at {deadline_s:g}"))
    assert [str(error) for error in outcomes] == ["at 1", "at 2"]
    tcp.loseConnection()
    tcp.take(1)
    assert tcp.is_closed


# -- a producer with acks=0 -------------------------------------------------------------------


def test_acks_zero_holds_memory_until_bytes_are_written() -> None:
    """Otherwise a producer faster than its broker would fill the transport without a limit."""
    site = ready(acks="0", buffer_memory=2_000, batch_size=400, linger_ms=0, max_block_ms=500)
    site.sim.stuck = []
    taken = 0
    while (handle := site.core.send(TOPIC, b"x" * 300)) is not None:
        site.sim.settle()
        taken += 1
    assert taken == 5
    assert not site.core.metrics()["buffer-available-bytes"]
    with pytest.raises(BufferExhausted, match=r"buffer\.memory=2000 stayed full"):
        site.run(site.core.room(TOPIC, 0.5))
    site.sim.unstick()
    handle = site.run(site.core.send_soon(TOPIC, b"the last"))
    site.flush()
    site.sim.advance(1_000)
    assert handle.done()
    assert len(site.values()) == taken + 1


def test_acks_zero_flush_and_close_wait_for_writes() -> None:
    site = ready(acks="0")
    site.sim.stuck = []
    [handle] = site.sent(b"first")
    site.sim.call_later(3, site.sim.unstick)
    began_s = site.sim.now_s()
    site.flush()
    assert site.sim.now_s() - began_s >= 3
    assert handle.metadata().offset == -1
    site.sim.stuck = []
    site.sent(b"second")
    site.sim.call_later(3, site.sim.unstick)
    site.run(site.core.close())
    site.sim.advance(1000)
    assert site.values() == [b"first", b"second"]


def test_acks_zero_resends_unwritten_batches_after_a_broken_connection() -> None:
    site = ready(acks="0")
    site.sim.stuck = []
    [handle] = site.sent(b"first")
    site.sim.advance(100)
    site.sim.drop_all()
    site.sim.unstick()
    site.flush()
    site.sim.advance(1000)
    assert handle.metadata().offset == -1
    assert site.values() == [b"first"]


def test_acks_zero_refreshes_metadata_after_a_lost_connection() -> None:
    """A broker that no longer leads a partition can only report it by closing the connection."""
    site = ready(acks="0", metadata_max_age_ms=3_600_000)
    site.sent(b"first")
    site.flush()
    site.sim.advance(60_000)
    site.sim.requests.clear()
    site.sim.drop_all()
    site.sent(b"second")
    site.flush()
    site.sim.advance(1_000)
    assert any(isinstance(request, MetadataRequest) for request in site.sim.requests)
    assert site.values() == [b"first", b"second"]
