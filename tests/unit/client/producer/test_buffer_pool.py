"""Sends that wait for memory: their order, and its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from plog.client.errors import BufferExhausted, ClosedError
from plog.client.faces import twisted as twisted_face
from plog.client.network.ports import Cancelled, Task
from plog.client.network.twisted_network import TwistedNetwork
from plog.client.producer.buffer_pool import BufferPoolQueue
from tests.helpers.client.client_on_sim_network import SimNetwork
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite, ready


def full(**options: Any) -> ProducerSite:
    """Return the site of a producer whose memory is full of records that the broker ignores."""
    site = ready(
        **{"buffer_memory": 4_000, "batch_size": 1_000, "request_timeout_ms": 1_000, **options}
    )
    site.sent(b"first")
    site.flush()
    site.sim.deaf = True
    while site.core.send(TOPIC, b"x" * 400) is not None:
        pass
    return site


class Sends:
    """Blocked sends, each in its own coroutine."""

    def __init__(self, site: ProducerSite) -> None:
        self.site = site
        self.errors: Counter[type[Exception]] = Counter()
        self.taken: list[bytes] = []

    async def _send(self, value: bytes) -> None:
        try:
            await self.site.core.send_soon(TOPIC, value)
        except Exception as error:
            self.errors[type(error)] += 1
        else:
            self.taken.append(value)

    def begin(self, *values: bytes) -> list[Task]:
        return [self.site.sim.spawn(self._send(value), "sending") for value in values]


def test_memory_is_granted_in_order_of_arrival() -> None:
    site = full()
    sends = Sends(site)
    values = [b"%d" % number + b"y" * (900 if number % 3 else 10) for number in range(30)]
    sends.begin(*values)
    site.sim.deaf = False
    site.sim.run_until(lambda: len(sends.taken) == len(values))
    assert sends.taken == values
    site.flush()
    written = [value for value in site.values() if value in values]
    assert written == values


def test_small_records_do_not_overtake_large_one_until_it_times_out() -> None:
    site = full(max_block_ms=30_000)
    sends = Sends(site)
    sends.begin(b"y" * 3_800)  # Nearly all of the memory.
    site.sim.deaf = False
    small = 0
    while not sends.taken and not sends.errors:
        small += site.core.send(TOPIC, b"z" * 300) is not None  # As other threads do.
        site.sim.advance(1)
    assert sends.taken
    assert small < 10  # Only those that fit into existing batches.


def test_thousands_of_waiters_are_checked_once_each() -> None:
    site = full(max_block_ms=60_000)
    looks = 0

    def counted(method: Callable[..., Any]) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal looks
            looks += 1
            return method(*arguments)

        return call

    accumulator = site.core._accumulator
    accumulator.append = counted(accumulator.append)  # type: ignore[method-assign]
    accumulator.has_room = counted(accumulator.has_room)  # type: ignore[method-assign]
    sends = Sends(site)
    sends.begin(*[b"%d" % number + b"y" * 390 for number in range(2_000)])
    site.sim.deaf = False
    site.sim.run_until(lambda: len(sends.taken) == 2_000)
    assert looks < 4 * 2_000
    assert site.core.metrics()["waiting-threads"] == 0


def test_all_waiters_that_fit_are_served_without_recursion_error() -> None:
    site = full(buffer_memory=200_000, batch_size=100_000, request_timeout_ms=1_000)
    sends = Sends(site)
    sends.begin(*[b"y"] * 5_000)
    site.sim.deaf = False
    site.sim.run_until(lambda: len(sends.taken) == 5_000)
    site.flush()
    assert len(site.values()) > 5_000


def test_next_waiter_is_served_when_first_gives_up() -> None:
    site = full()
    sends = Sends(site)
    first, _ = sends.begin(b"1", b"2")
    first.cancel()
    site.sim.deaf = False
    site.sim.run_until(lambda: bool(sends.taken))
    assert sends.taken == [b"2"]
    assert sends.errors == {Cancelled: 1}


def test_each_waiter_has_its_own_timeout() -> None:
    site = full(max_block_ms=1_000)
    sends = Sends(site)
    sends.begin(b"1")
    site.sim.advance(600)
    sends.begin(b"2")
    site.sim.advance(500)
    assert sends.errors == {BufferExhausted: 1}
    site.sim.advance(500)
    assert sends.errors == {BufferExhausted: 2}
    assert site.core.metrics()["waiting-threads"] == 0


def test_close_wakes_all_waiters() -> None:
    site = full()
    sends = Sends(site)
    sends.begin(*[b"y"] * 100)
    site.run(site.core.close(0))
    assert sends.errors == {ClosedError: 100}


def test_waiter_that_arrives_during_serve_is_served() -> None:
    network = SimNetwork()
    lengths: list[int] = []
    line = BufferPoolQueue(network, lengths.append)
    line.serve()  # The queue is empty.
    with line.place() as first:
        assert first.is_first
        with line.place() as second:
            assert not second.is_first
            line.serve()
            assert (first.news.is_set, second.news.is_set) == (True, False)
        assert len(line) == 1
    assert lengths == [1, 2, 1, 0]


# -- in the engine's own thread -------------------------------------------------------------------


@pytest.fixture
def twisted(monkeypatch: pytest.MonkeyPatch) -> tuple[ProducerSite, twisted_face.Producer]:
    """Twisted's face on a simulated network."""
    site = ProducerSite()
    monkeypatch.setattr(TwistedNetwork, "of", lambda *_: site.sim)
    producer = twisted_face.Producer(
        bootstrap_servers=",".join(site.sim.bootstrap_servers),
        reactor=object(),
        buffer_memory=4_000,
        batch_size=1_000,
        linger_ms=60_000,
    )
    return site, producer


def test_later_sends_are_not_written_earlier(
    twisted: tuple[ProducerSite, twisted_face.Producer],
) -> None:
    site, producer = twisted
    values = [b"%d" % number + b"y" * (10 if number % 4 else 2_500) for number in range(100)]
    outcomes = [producer.send(TOPIC, value) for value in values]  # They wait for the topic.
    site.sim.run_until(lambda: all(outcome.called for outcome in outcomes[:50]))
    site.sim.run_until(lambda: not producer._waiting)
    flushed = producer.flush()
    site.sim.run_until(lambda: flushed.called)
    large = b"y" * 3_500  # Too large to fit next to another batch, unlike the small one.
    outcomes += [producer.send(TOPIC, value) for value in (b"1", large, b"3")]
    assert list(producer._waiting) == [101, 102]
    closed = producer.close()
    site.sim.run_until(lambda: closed.called)
    assert all(outcome.called for outcome in outcomes)
    assert site.values() == [*values, b"1", large, b"3"]


def test_flush_does_not_wait_for_later_sends(
    twisted: tuple[ProducerSite, twisted_face.Producer],
) -> None:
    site, producer = twisted
    sent = 0

    def send(_: object = None) -> None:
        """Send the next record, which waits, as soon as one is accepted."""
        nonlocal sent
        sent += 1
        waiting = producer._send_soon(TOPIC, b"z" * 900)
        outcome = Deferred.fromCoroutine(waiting).addCallback(lambda _: sent < 500 and send())
        outcome.addErrback(lambda failure: failure.trap(ClosedError))

    for _ in range(20):
        send()
    flushed = producer.flush()
    site.sim.run_until(lambda: flushed.called)
    assert sent < 100
    closed = producer.close()
    site.sim.run_until(lambda: closed.called)
