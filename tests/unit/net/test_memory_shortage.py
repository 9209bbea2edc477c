"""Which connections are closed when request or response memory is exhausted."""

from __future__ import annotations

import pytest

from plogd.net.connection import Connection
from plogd.net.memory_shortage import CHECK_INTERVAL_MS
from tests.helpers.net_connection import ConnectionHarness, FakeWire
from tests.helpers.net_parts import FETCH, METADATA, PRODUCE, frame

SECOND_MS = 1000.0
MIB = 1 << 20
LARGE = frame(METADATA, "x" * 3 * MIB)


class Client:
    """One of several clients of the same broker."""

    def __init__(self, harness: ConnectionHarness) -> None:
        self.harness = harness
        self.connection: Connection = harness.connect()
        self.wire: FakeWire = harness.wire
        self.rest = b""

    def feed(self, data: bytes) -> None:
        self.harness.connection, self.harness.wire = self.connection, self.wire
        self.rest = self.harness.feed(self.rest + data)

    def read(self, nbytes: int | None = None) -> None:
        self.harness.connection, self.harness.wire = self.connection, self.wire
        self.harness.let_leave(nbytes)

    @property
    def is_closed(self) -> bool:
        return self.wire.is_closed or self.wire.is_aborted


def pass_time(harness: ConnectionHarness, seconds: float) -> None:
    for _ in range(int(seconds * SECOND_MS / CHECK_INTERVAL_MS)):
        harness.ports.advance(CHECK_INTERVAL_MS)


def test_slow_large_requests_are_closed_in_favor_of_a_fast_one(
    log_lines: list[str],
) -> None:
    harness = ConnectionHarness(queued_max_request_bytes=8 * MIB)
    tricklers = [Client(harness) for _ in range(3)]
    for client in tricklers:
        client.feed(LARGE[: MIB + 20_000])
    honest = Client(harness)
    honest.feed(LARGE)
    assert not honest.wire.is_reading
    for _ in range(8):
        pass_time(harness, 1)
        for client in tricklers:
            if not client.is_closed:
                client.feed(b"x" * 1000)
        honest.feed(b"")
    assert len(honest.wire.answers) == 1
    assert all(client.is_closed for client in tricklers)
    assert harness.shared.memory.used_bytes == 0
    [line] = log_lines
    assert f"{len(LARGE)} bytes too slowly while other requests were" in line


def test_slow_clients_are_not_closed_while_there_is_memory() -> None:
    harness = ConnectionHarness()
    tricklers = [Client(harness) for _ in range(3)]
    for client in tricklers:
        client.feed(LARGE[:20_000])
    pass_time(harness, 10)
    assert not any(client.is_closed for client in tricklers)


def test_client_that_sends_fast_enough_keeps_its_connection() -> None:
    harness = ConnectionHarness(queued_max_request_bytes=4 * MIB)
    fast, waiting = Client(harness), Client(harness)
    fast.feed(LARGE[:20_000])
    waiting.feed(LARGE)
    position = 20_000
    while position < len(LARGE):
        pass_time(harness, 0.25)
        fast.feed(LARGE[position : position + 90_000])
        position += 90_000
    assert len(fast.wire.answers) == 1
    waiting.feed(b"")
    assert len(waiting.wire.answers) == 1
    assert not fast.is_closed
    assert not waiting.is_closed


def test_client_whose_next_request_may_not_start_uses_no_memory() -> None:
    """Otherwise a large request after a long poll would occupy memory indefinitely."""
    harness = ConnectionHarness(queued_max_request_bytes=4 * MIB)
    polling, honest = Client(harness), Client(harness)
    polling.feed(frame(FETCH, "slow"))
    polling.feed(LARGE)
    assert polling.rest
    assert harness.shared.memory.leased_bytes == 0
    honest.feed(LARGE)
    assert len(honest.wire.answers) == 1
    harness.dispatch.release("slow")
    harness.ports.settle()
    polling.feed(b"")
    assert len(polling.wire.answers) == 2


def test_request_after_unread_responses_counts_as_delayed_by_the_client() -> None:
    harness = ConnectionHarness(
        queued_max_request_bytes=4 * MIB, plog_response_buffer_max_bytes=64 * 1024
    )
    deaf, honest = Client(harness), Client(harness)
    deaf.wire.takes_answers = False
    deaf.feed(frame(METADATA, "x" * 70_000) + LARGE[:200_000])
    deaf.feed(LARGE[200_000:400_000])
    deaf.connection.drained()
    honest.feed(LARGE)
    pass_time(harness, 3)
    honest.feed(b"")
    assert len(honest.wire.answers) == 1


def unread(harness: ConnectionHarness, text: str = "x" * 100_000) -> Client:
    """Return a client with unread responses."""
    client = Client(harness)
    client.wire.takes_answers = False
    client.feed(frame(METADATA, text))
    return client


def test_clients_that_do_not_read_are_closed_until_memory_is_free(log_lines: list[str]) -> None:
    harness = ConnectionHarness(plog_queued_max_response_bytes=MIB)
    clients = [unread(harness, "x" * (90_000 + n)) for n in range(15)]
    assert harness.shared.responses.is_full
    pass_time(harness, 1)
    assert not harness.shared.responses.is_full
    closed = [client.is_closed for client in clients]
    assert closed.count(True) == 4
    assert closed[-4:] == [True] * 4, "the largest first"
    [line] = log_lines
    assert "plog.queued.max.response.bytes" in line


def test_unread_responses_are_kept_while_there_is_memory() -> None:
    harness = ConnectionHarness(plog_queued_max_response_bytes=MIB)
    client = unread(harness)
    pass_time(harness, 60)
    assert not client.is_closed


def test_client_that_reads_fast_enough_keeps_its_connection_and_is_served() -> None:
    harness = ConnectionHarness(plog_queued_max_response_bytes=MIB)
    slow = unread(harness, "x" * 600_000)
    unread(harness, "x" * 600_000)
    reading = Client(harness)
    for _ in range(20):
        pass_time(harness, 0.25)
        slow.read(20_000)
        reading.feed(frame(METADATA, "a"))
    assert not slow.is_closed
    assert len(reading.wire.answers) == 20


def test_client_that_reads_byte_by_byte_does_not_keep_its_connection() -> None:
    harness = ConnectionHarness(plog_queued_max_response_bytes=MIB)
    clients = [unread(harness, "x" * 600_000) for _ in range(2)]
    for _ in range(12):
        pass_time(harness, 0.25)
        for client in clients:
            if not client.is_closed:
                client.read(100)
    assert [client.is_closed for client in clients].count(True) == 1


def test_no_request_starts_after_unread_responses_while_memory_is_exhausted() -> None:
    harness = ConnectionHarness(plog_queued_max_response_bytes=MIB)
    client = unread(harness, "x" * 10)
    unread(harness, "x" * 2_000_000)
    client.feed(frame(PRODUCE, "next"))
    assert "next" not in harness.dispatch.started
    client.read()
    harness.ports.settle()
    assert "next" in harness.dispatch.started


def test_single_response_over_the_limit_is_sent_to_a_client_that_reads() -> None:
    harness = ConnectionHarness(plog_queued_max_response_bytes=MIB)
    client = unread(harness, "x" * 3_000_000)
    for _ in range(20):
        pass_time(harness, 0.25)
        client.read(90_000)
    assert not client.is_closed


def test_clients_that_do_not_read_are_closed_soon_above_twice_the_limit() -> None:
    harness = ConnectionHarness(plog_queued_max_response_bytes=MIB)
    clients = [unread(harness, "x" * 500_000) for _ in range(6)]
    pass_time(harness, 0.25)
    assert harness.shared.responses.used_bytes <= 2 * MIB
    assert [client.is_closed for client in clients].count(True) == 2


def test_concurrent_large_responses_close_no_client_that_reads() -> None:
    """As when a hundred consumers request all topics of a large cluster."""
    harness = ConnectionHarness(plog_queued_max_response_bytes=MIB)
    clients = [unread(harness, "x" * 500_000) for _ in range(10)]
    for _ in range(8):
        harness.ports.advance(CHECK_INTERVAL_MS - 1)
        for client in clients:
            client.read(70_000)
        harness.ports.advance(1)
    assert not any(client.is_closed for client in clients)


@pytest.mark.parametrize("end", ["lost", "abort"])
def test_closed_connection_is_no_longer_counted(end: str) -> None:
    harness = ConnectionHarness(plog_queued_max_response_bytes=MIB)
    client = unread(harness, "x" * 2_000_000)
    if end == "lost":
        client.connection.lost()
    else:
        client.connection.abort("test")
    assert harness.shared.responses.used_bytes == 0
    assert not harness.shared.responses.is_full
