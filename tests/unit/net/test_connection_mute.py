"""A connection whose client exceeds its quota: only it waits, and it loses no request."""

from __future__ import annotations

import pytest

from tests.helpers.net_connection import ConnectionHarness
from tests.helpers.net_parts import FETCH, METADATA, PRODUCE, frame

SECOND_MS = 1000.0


def make(mute_ms: int = 10_000, **settings: int) -> ConnectionHarness:
    """Return a broker that mutes the sender of "over"."""
    harness = ConnectionHarness(**settings)

    def on_start(text: str) -> None:
        if text == "over":
            harness.dispatch.contexts[-1].mute_ms = mute_ms

    harness.dispatch.on_start = on_start
    return harness


def test_requests_after_a_throttled_one_wait_for_the_throttle_time() -> None:
    harness = make()
    harness.feed(frame(PRODUCE, "over") + frame(PRODUCE, "a"))
    harness.feed(frame(METADATA, "b"))
    assert harness.answers == ["over"]
    harness.ports.advance(9_999)
    assert harness.answers == ["over"]
    harness.ports.advance(1)
    assert harness.answers == ["over", "a", "b"]


def test_other_connections_are_served_during_a_mute() -> None:
    harness = make()
    harness.feed(frame(PRODUCE, "over") + frame(PRODUCE, "a"))
    harness.connect()
    harness.feed(frame(PRODUCE, "other"))
    assert harness.answers == ["other"]


def test_read_ahead_of_a_muted_connection_is_limited_until_the_mute_ends() -> None:
    harness = make()
    harness.feed(frame(PRODUCE, "over"))
    rest = harness.feed(b"".join(frame(METADATA, "x" * 1000) for _ in range(300)))
    assert rest
    assert not harness.wire.is_reading
    harness.ports.advance(10_000)
    assert harness.wire.is_reading
    assert harness.feed(rest) == b""
    harness.ports.settle()
    assert len(harness.answers) == 301


@pytest.mark.parametrize("behind", [b"", frame(METADATA, "a")])
def test_large_request_gets_no_lease_while_it_may_not_start(behind: bytes) -> None:
    harness = make(queued_max_request_bytes=1_500_000)
    harness.feed(frame(PRODUCE, "over") + behind)
    large = frame(PRODUCE, "x" * 1_000_000)
    rest = harness.feed(large)
    assert rest
    assert harness.shared.memory.leased_bytes == 0
    harness.ports.advance(10_000)
    assert harness.shared.memory.leased_bytes > 0
    assert harness.feed(rest) == b""
    harness.ports.settle()
    assert harness.dispatch.started[-1] == "x" * 1_000_000
    assert harness.shared.memory.used_bytes == 0


def test_muted_connection_is_not_closed_as_slow() -> None:
    harness = make(mute_ms=120_000, connections_max_idle_ms=-1)
    harness.feed(frame(PRODUCE, "over"))
    rest = harness.feed(frame(PRODUCE, "x" * 200_000))
    for _ in range(24):
        harness.ports.advance(5 * SECOND_MS)
        harness.shared.sweep()
    assert not harness.wire.is_closed
    harness.ports.advance(20 * SECOND_MS)
    harness.shared.sweep()
    assert not harness.wire.is_closed, "the full time starts after the mute"
    harness.feed(rest)
    assert len(harness.answers) == 2


def test_requests_of_a_muted_client_are_handled_after_it_disconnects() -> None:
    """acks=0: a client sends, then closes. Kafka, too, reads the socket to its end."""
    harness = make()
    harness.feed(frame(PRODUCE, "over") + frame(PRODUCE, "a") + frame(PRODUCE, "b"))
    harness.connection.end_of_stream()
    harness.wire.has_left = True
    harness.shared.sweep()
    assert not harness.wire.is_closed
    assert not harness.wire.is_reading
    harness.ports.advance(10_000)
    assert harness.dispatch.started == ["over", "a", "b"]
    assert harness.wire.is_closed


def test_repeatedly_throttled_connection_is_handled_to_its_end() -> None:
    harness = make()
    harness.feed(frame(PRODUCE, "over") * 3)
    harness.connection.end_of_stream()
    harness.ports.advance(10_000)
    assert len(harness.dispatch.started) == 2
    assert not harness.wire.is_closed
    harness.ports.advance(10_000)
    assert len(harness.dispatch.started) == 3
    assert harness.wire.is_closed


@pytest.mark.parametrize("behind", [b"", frame(METADATA, "cut")[:5]])
def test_muted_connection_without_a_waiting_request_closes_immediately_on_disconnect(
    behind: bytes,
) -> None:
    harness = make()
    harness.feed(frame(PRODUCE, "over") + behind)
    harness.connection.end_of_stream()
    assert harness.wire.is_closed
    harness.ports.advance(20_000)


def test_idle_connection_is_closed_after_a_mute() -> None:
    harness = make(mute_ms=3_600_000, connections_max_idle_ms=600_000)
    harness.feed(frame(PRODUCE, "over") + frame(PRODUCE, "a"))
    harness.ports.advance(600_001)
    harness.shared.sweep()
    assert harness.wire.is_closed


def test_throttled_fetch_mutes_when_it_completes() -> None:
    harness = make()
    harness.feed(frame(FETCH, "slow") + frame(METADATA, "a"))
    harness.dispatch.contexts[-1].mute_ms = 5_000
    harness.dispatch.release("slow")
    harness.ports.advance(4_999)
    assert harness.answers == ["slow"]
    harness.ports.advance(1)
    assert harness.answers == ["slow", "a"]


def test_lost_connection_leaves_no_timer() -> None:
    harness = make()
    harness.feed(frame(PRODUCE, "over") + frame(PRODUCE, "a"))
    harness.connection.lost()
    assert harness.ports.timers.next_due_ms is None
    assert len(harness.shared) == 0
