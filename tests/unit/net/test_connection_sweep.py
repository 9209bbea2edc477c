"""The sweep of connections: slow ones, idle ones, and those whose clients have disconnected."""

from __future__ import annotations

import pytest

from plogd.net.connection import CLOSE_MAX_MS
from tests.helpers.net_connection import ConnectionHarness
from tests.helpers.net_parts import FETCH, METADATA, frame

SECOND_MS = 1000.0


def test_request_that_arrives_too_slowly_closes_the_connection_and_is_logged(
    log_lines: list[str],
) -> None:
    harness = ConnectionHarness()
    harness.feed(frame(METADATA, "x" * 200_000)[:100])
    for _ in range(7):
        harness.ports.advance(5 * SECOND_MS)
        if not harness.wire.is_closed:
            harness.feed(b"x" * 5)
        harness.shared.sweep()
    assert harness.wire.is_closed
    [line] = log_lines
    assert "a request of 200006 bytes too slowly: 130 bytes had arrived" in line
    assert "plog.partial.request.timeout.ms" in line


def test_request_that_arrives_at_a_sufficient_rate_is_not_slow() -> None:
    harness = ConnectionHarness()
    data = frame(METADATA, "x" * 60_000)
    while data:
        harness.feed(data[:8000])
        data = data[8000:]
        harness.ports.advance(5 * SECOND_MS)
        harness.shared.sweep()
        assert not harness.wire.is_closed
    assert len(harness.answers) == 1


@pytest.mark.parametrize(("piece", "is_closed"), [(900_000, True), (1_800_000, False)])
def test_large_request_must_arrive_at_a_rate_in_proportion_to_its_size(
    piece: int, is_closed: bool
) -> None:
    harness = ConnectionHarness()
    data = frame(METADATA, "x" * 20_000_000)
    for start in range(0, len(data), piece):
        if not harness.wire.is_closed:
            harness.feed(data[start : start + piece])
        harness.ports.advance(5 * SECOND_MS)
        harness.shared.sweep()
    assert harness.wire.is_closed is is_closed
    assert len(harness.answers) == (not is_closed)
    assert harness.shared.memory.used_bytes == 0


def test_rate_is_measured_in_consecutive_windows() -> None:
    harness = ConnectionHarness()
    harness.feed(frame(METADATA, "x" * 5_000_000)[:500_000])
    for _ in range(11):
        harness.ports.advance(6 * SECOND_MS)
        harness.shared.sweep()
    assert harness.wire.is_closed, "fast first bytes do not compensate for a stall"


def test_request_that_the_broker_does_not_read_is_not_slow() -> None:
    harness = ConnectionHarness(connections_max_idle_ms=-1)
    harness.feed(frame(FETCH, "slow") + frame(METADATA, "a") + frame(METADATA, "b")[:5])
    for _ in range(20):
        harness.ports.advance(5 * SECOND_MS)
        harness.shared.sweep()
    assert not harness.wire.is_closed
    harness.dispatch.release("slow")
    harness.ports.settle()
    harness.ports.advance(10 * SECOND_MS)
    harness.shared.sweep()
    assert not harness.wire.is_closed
    harness.feed(frame(METADATA, "b")[5:])
    assert harness.answers == ["slow", "a", "b"]


def test_request_that_waits_for_memory_is_not_slow() -> None:
    harness = ConnectionHarness(
        queued_max_request_bytes=1_500_000,
        plog_partial_request_timeout_ms=4000,
    )
    first, first_wire = harness.connection, harness.wire
    data = frame(METADATA, "x" * 1_000_000)
    harness.feed(data[:200_000])
    second = harness.connect()
    second_wire = harness.wire
    rest = harness.feed(data)
    assert not second_wire.is_reading
    harness.connection, harness.wire = first, first_wire
    for position in range(200_000, len(data), 280_000):
        harness.ports.advance(1.9 * SECOND_MS)
        harness.feed(data[position : position + 280_000])
        harness.shared.sweep()
    assert len(harness.answers) == 1
    assert second_wire.is_reading
    harness.ports.advance(2 * SECOND_MS)
    harness.shared.sweep()
    assert not second_wire.is_closed
    harness.connection, harness.wire = second, second_wire
    harness.feed(rest)
    assert len(harness.answers) == 1
    assert harness.shared.memory.used_bytes == 0


def test_idle_connection_is_closed_after_the_idle_time() -> None:
    harness = ConnectionHarness(connections_max_idle_ms=60_000)
    harness.feed(frame(METADATA, "a"))
    harness.ports.advance(59 * SECOND_MS)
    harness.shared.sweep()
    assert not harness.wire.is_closed
    harness.ports.advance(2 * SECOND_MS)
    harness.shared.sweep()
    assert harness.wire.is_closed


def test_connection_whose_request_is_parked_is_not_idle() -> None:
    harness = ConnectionHarness(connections_max_idle_ms=60_000)
    harness.feed(frame(FETCH, "slow"))
    harness.ports.advance(100 * SECOND_MS)
    harness.shared.sweep()
    assert not harness.wire.is_closed


def test_idle_time_of_minus_one_disables_the_timeout() -> None:
    harness = ConnectionHarness(connections_max_idle_ms=-1)
    harness.ports.advance(1e9)
    harness.shared.sweep()
    assert not harness.wire.is_closed


def test_idle_client_with_unread_responses_is_aborted() -> None:
    harness = ConnectionHarness(connections_max_idle_ms=60_000)
    harness.wire.takes_answers = False
    harness.feed(frame(METADATA, "a"))
    harness.ports.advance(59 * SECOND_MS)
    harness.shared.sweep()
    assert not harness.wire.is_aborted
    harness.ports.advance(2 * SECOND_MS)
    harness.shared.sweep()
    assert harness.wire.is_aborted


def test_closing_connection_is_aborted_when_its_last_responses_are_not_read() -> None:
    harness = ConnectionHarness()
    harness.wire.takes_answers = False
    harness.feed(frame(METADATA, "a") + frame(METADATA, "nonsense"))
    assert harness.wire.is_closed
    harness.ports.advance(CLOSE_MAX_MS - 1)
    harness.shared.sweep()
    assert not harness.wire.is_aborted
    harness.ports.advance(2)
    harness.shared.sweep()
    assert harness.wire.is_aborted


def test_sweep_aborts_a_connection_whose_client_has_disconnected() -> None:
    harness = ConnectionHarness()
    harness.feed(frame(FETCH, "slow") + frame(METADATA, "behind"))
    harness.wire.has_left = True
    harness.shared.sweep()
    assert harness.wire.is_aborted
    assert harness.dispatch.cancelled == ["slow"]


def test_half_closed_client_that_reads_its_responses_is_not_aborted() -> None:
    harness = ConnectionHarness(plog_response_buffer_max_bytes=64 * 1024)
    harness.wire.takes_answers = False
    harness.feed(frame(METADATA, "x" * 70_000) + frame(METADATA, "behind"))
    harness.connection.end_of_stream()
    harness.wire.has_left = True
    harness.shared.sweep()
    assert not harness.wire.is_aborted
