"""One connection over a fake transport: turns, bounds, and every way in which it can end."""

from __future__ import annotations

import weakref

import pytest

from plogd.net.connection import PROMPT_MAX_BYTES, TURN_MAX_MS
from plogd.net.receive_buffer import HELD_MAX_BYTES
from plogd.net.run_queue import DIRECT_MAX_MS
from tests.helpers.client.collector import no_collector
from tests.helpers.net_connection import ConnectionHarness, FakeWire
from tests.helpers.net_parts import FETCH, METADATA, PRODUCE, frame, response


def test_responses_to_requests_of_one_read_are_sent_together() -> None:
    harness = ConnectionHarness()
    corked: list[bool] = []
    harness.dispatch.on_start = lambda text: corked.append(harness.wire.is_corked)
    harness.feed(frame(METADATA, "a") + frame(PRODUCE, "b") + frame(FETCH, "c")[:5])
    assert harness.answers == ["a", "b"]
    assert corked == [True, True]
    assert not harness.wire.is_corked
    harness.feed(frame(FETCH, "c")[5:])
    assert harness.answers == ["a", "b", "c"]
    assert harness.shared.requests == 3


def test_all_appends_of_a_read_share_one_turn() -> None:
    harness = ConnectionHarness()
    rounds: list[list[str]] = []
    harness.dispatch.on_start = lambda text: harness.ports.turn.defer(
        lambda: rounds.append(list(harness.dispatch.started))
    )
    harness.feed(frame(PRODUCE, "a") + frame(PRODUCE, "b"))
    assert rounds == [["a", "b"], ["a", "b"]], "deferred calls run after both have started"


def test_view_is_released_when_its_handler_returns() -> None:
    harness = ConnectionHarness()
    harness.feed(frame(METADATA, "ready") + frame(FETCH, "slow") + frame(FETCH, "later"))
    for view in harness.dispatch.views:
        with pytest.raises(ValueError, match="released"):
            view[0]


def test_requests_after_a_parked_fetch_wait_and_get_their_own_turn() -> None:
    harness = ConnectionHarness()
    harness.feed(frame(FETCH, "slow") + frame(PRODUCE, "a") + frame(METADATA, "b"))
    assert harness.dispatch.started == ["slow"]
    harness.dispatch.release("slow")
    assert harness.dispatch.started == ["slow"], "not inside another request's turn"
    harness.ports.settle()
    assert harness.answers == ["slow", "a", "b"]


def test_read_ahead_is_limited_while_a_request_is_parked() -> None:
    harness = ConnectionHarness()
    stream = frame(FETCH, "slow") + frame(METADATA, "x" * 1000) * 300
    rest = harness.feed(stream)
    assert not harness.wire.is_reading
    # The read that contained the parked request may have contained more.
    assert len(stream) - len(rest) <= 256 * 1024
    harness.dispatch.release("slow")
    harness.ports.settle()
    assert harness.wire.is_reading
    harness.feed(rest)
    harness.ports.settle()
    assert len(harness.answers) == 301


def test_disconnect_is_detected_while_a_request_is_parked() -> None:
    harness = ConnectionHarness()
    harness.feed(frame(FETCH, "slow"))
    assert harness.wire.is_reading
    rest = harness.feed(frame(METADATA, "x") * 20_000)
    assert len(rest) == len(frame(METADATA, "x") * 20_000) - HELD_MAX_BYTES
    harness.connection.end_of_stream()
    assert harness.wire.is_closed
    assert harness.dispatch.cancelled == ["slow"]


def test_turn_ends_after_the_maximum_of_requests_and_the_rest_is_handled_later() -> None:
    harness = ConnectionHarness(plog_request_turn_max_requests=3)
    data = b"".join(frame(METADATA, str(n)) for n in range(8))
    harness.feed(data)
    assert harness.answers == ["0", "1", "2"]
    assert harness.wire.is_reading
    harness.ports.timers.run_next()
    assert harness.answers == ["0", "1", "2", "3", "4", "5"]
    harness.ports.settle()
    assert harness.answers == [str(n) for n in range(8)]
    assert not len(harness.shared.run_queue)


def test_turn_ends_after_the_maximum_time() -> None:
    harness = ConnectionHarness()
    clock = harness.ports.clock
    harness.dispatch.on_start = lambda text: clock.advance_to(
        clock.monotonic_ms() + TURN_MAX_MS / 2 + 0.1
    )
    harness.feed(frame(METADATA, "a") + frame(METADATA, "b") + frame(METADATA, "c"))
    assert harness.answers == ["a", "b"]
    harness.ports.settle()
    assert harness.answers == ["a", "b", "c"]


def test_busy_connection_does_not_delay_another() -> None:
    harness = ConnectionHarness(plog_request_turn_max_requests=1)
    harness.feed(frame(METADATA, "a1") + frame(METADATA, "a2") + frame(METADATA, "a3"))
    harness.connect()
    harness.feed(frame(METADATA, "b1") + frame(METADATA, "b2"))
    harness.ports.settle()
    assert harness.dispatch.started == ["a1", "b1", "a2", "b2", "a3"]


def busy(harness: ConnectionHarness, cost_ms: float) -> None:
    """Make each starting request take some time."""
    clock = harness.ports.clock
    harness.dispatch.on_start = lambda text: clock.advance_to(clock.monotonic_ms() + cost_ms)


def test_produce_does_not_wait_while_many_connections_are_ready() -> None:
    harness = ConnectionHarness()
    busy(harness, 1.5)
    for n in range(100):
        harness.connect()
        harness.feed(frame(METADATA, f"heavy {n}") * 3)
    started = len(harness.dispatch.started)
    assert started < 20, "the others wait in the run queue"
    harness.connect()
    harness.feed(frame(PRODUCE, "prompt"))
    assert harness.dispatch.started[started:] == ["prompt"]
    assert harness.answers == ["prompt"]
    harness.ports.settle()
    assert len(harness.dispatch.started) == 301


def test_large_produce_waits_while_many_connections_are_ready() -> None:
    harness = ConnectionHarness()
    busy(harness, DIRECT_MAX_MS + 1)
    harness.feed(frame(METADATA, "heavy"))
    harness.connect()
    started = len(harness.dispatch.started)
    harness.feed(frame(PRODUCE, "x" * (PROMPT_MAX_BYTES + 1)))
    assert len(harness.dispatch.started) == started
    harness.ports.settle()
    assert len(harness.dispatch.started) == started + 1


def test_turns_are_short_while_many_connections_are_ready() -> None:
    harness = ConnectionHarness()
    busy(harness, 9)
    harness.feed(frame(METADATA, "heavy"))
    busy(harness, 0.06)
    harness.connect()
    harness.feed(frame(PRODUCE, "a") * 20)
    assert harness.dispatch.started[1:] == ["a"] * 2
    harness.ports.settle()
    assert harness.dispatch.started[1:] == ["a"] * 20


def test_shorter_turns_count_when_more_connections_are_open() -> None:
    harness = ConnectionHarness()
    busy(harness, 0.1)
    wires = [harness.wire]
    for _ in range(1_000):
        harness.connect()
        wires.append(harness.wire)
    for wire in wires:
        assert wire.connection is not None
        harness.wire, harness.connection = wire, wire.connection
        harness.feed(frame(METADATA, "light"))
    assert len(harness.dispatch.started) < 100
    harness.ports.settle()
    assert len(harness.dispatch.started) == 1_001


def test_clients_that_leave_together_are_removed_in_several_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ConnectionHarness()
    clock = harness.ports.clock
    closed: list[FakeWire] = []

    def close(wire: FakeWire) -> None:
        closed.append(wire)
        clock.advance_to(clock.monotonic_ms() + 0.1)

    monkeypatch.setattr(FakeWire, "close", close)
    for number in range(1_000):
        connection = harness.connect()
        harness.feed(frame(FETCH if number % 2 else METADATA, "slow"))
        connection.end_of_stream()
    assert len(closed) < 100
    harness.connect()
    harness.feed(frame(PRODUCE, "prompt"))
    assert harness.answers == ["prompt"]
    harness.ports.settle()
    assert len(closed) == 1_000
    assert len(harness.dispatch.cancelled) == 1_000


def test_incomplete_request_is_read_while_many_connections_are_ready() -> None:
    harness = ConnectionHarness()
    busy(harness, 9)
    harness.feed(frame(METADATA, "heavy"))
    harness.connect()
    harness.feed(frame(METADATA, "split")[:5])
    assert len(harness.shared.run_queue) == 0
    harness.ports.settle()
    harness.feed(frame(METADATA, "split")[5:])
    assert harness.answers == ["split"]


def test_no_request_starts_while_too_many_responses_are_unsent() -> None:
    harness = ConnectionHarness(plog_response_buffer_max_bytes=64 * 1024)
    harness.wire.takes_answers = False
    large = "x" * 60_000
    harness.feed(frame(METADATA, large) * 2)
    harness.feed(frame(METADATA, "c"))
    assert len(harness.answers) == 2
    harness.feed(frame(METADATA, "d") * 10_000)
    assert not harness.wire.is_reading
    harness.let_leave()
    assert len(harness.answers) == 2, "in a turn of its own"
    harness.wire.takes_answers = True
    harness.ports.settle()
    assert harness.answers[2] == "c"
    assert harness.wire.is_reading


def test_end_of_stream_is_handled_after_the_requests_that_may_start() -> None:
    harness = ConnectionHarness(plog_request_turn_max_requests=1)
    harness.feed(frame(PRODUCE, "a") + frame(PRODUCE, "b") + frame(PRODUCE, "c"))
    harness.connection.end_of_stream()
    assert not harness.wire.is_closed
    assert not harness.wire.is_reading
    harness.ports.settle()
    assert harness.dispatch.started == ["a", "b", "c"]
    assert harness.wire.is_closed


def test_connection_closes_in_its_turn_when_many_clients_leave_at_the_same_time() -> None:
    harness = ConnectionHarness()
    harness.feed(frame(FETCH, "slow"))
    harness.shared.run_queue.spent(DIRECT_MAX_MS + 1)
    harness.connection.end_of_stream()
    assert not harness.wire.is_reading
    assert not harness.wire.is_closed
    harness.ports.timers.run_due()
    assert harness.wire.is_closed
    assert harness.dispatch.cancelled == ["slow"]
    assert not len(harness.shared.run_queue)


def test_time_that_closing_takes_delays_the_ends_of_other_clients() -> None:
    harness = ConnectionHarness()
    clock, first = harness.ports.clock, harness.wire
    harness.wire.on_close = lambda: clock.advance_to(clock.monotonic_ms() + DIRECT_MAX_MS + 1)
    harness.connection.end_of_stream()
    harness.connect().end_of_stream()
    assert first.is_closed
    assert not harness.wire.is_closed
    harness.ports.settle()
    assert harness.wire.is_closed


def test_requests_start_before_the_end_of_stream_when_output_was_blocked() -> None:
    harness = ConnectionHarness(plog_response_buffer_max_bytes=64 * 1024)
    harness.wire.takes_answers = False
    harness.feed(frame(METADATA, "x" * 70_000) + frame(PRODUCE, "last"))
    harness.connection.end_of_stream()
    assert not harness.wire.is_closed
    harness.let_leave()
    harness.ports.settle()
    assert harness.dispatch.started[-1] == "last"
    assert harness.wire.is_closed


def test_end_of_stream_cancels_waits_for_acks_but_keeps_the_appends() -> None:
    harness = ConnectionHarness()
    harness.feed(frame(PRODUCE, "slow"))
    harness.connection.end_of_stream()
    assert harness.dispatch.started == ["slow"]
    assert harness.dispatch.cancelled == ["slow"]
    assert harness.wire.is_closed


def test_invalid_request_closes_the_connection_and_is_logged_once(log_lines: list[str]) -> None:
    harness = ConnectionHarness()
    harness.feed(frame(METADATA, "nonsense") + frame(METADATA, "more"))
    assert harness.wire.is_closed
    assert harness.dispatch.started == ["nonsense"]
    assert log_lines == ["192.0.2.1: closed a connection: the request is invalid"]


def test_unexpected_exception_closes_the_connection_and_is_logged(log_lines: list[str]) -> None:
    harness = ConnectionHarness()
    harness.feed(frame(METADATA, "bug") + frame(METADATA, "more"))
    assert harness.wire.is_aborted
    assert harness.dispatch.started == ["bug"]
    assert log_lines == ["request of 192.0.2.1:40000 failed unexpectedly"]


def test_exception_in_a_deferred_call_closes_no_connection(log_lines: list[str]) -> None:
    harness = ConnectionHarness()

    def fail() -> None:
        raise ZeroDivisionError

    harness.dispatch.on_start = lambda text: harness.ports.turn.defer(fail)
    harness.feed(frame(METADATA, "a"))
    assert harness.answers == ["a"]
    assert not harness.wire.is_aborted
    assert not harness.wire.is_closed
    assert log_lines == ["a call deferred to the end of a turn failed"]


@pytest.mark.parametrize("size", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x06\x40\x00\x01"])
def test_invalid_size_closes_the_connection_and_is_logged(
    size: bytes, log_lines: list[str]
) -> None:
    harness = ConnectionHarness()
    harness.feed(frame(METADATA, "fine") + size + b"rest")
    assert harness.answers == ["fine"]
    assert harness.wire.is_closed
    [line] = log_lines
    assert str(int.from_bytes(size, "big", signed=True)) in line
    assert "1 to 104857600" in line
    assert "socket.request.max.bytes" in line


@pytest.mark.parametrize(
    ("first_bytes", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", ("HTTP", "plog.http.port")),
        (b"\x16\x03\x01\x00\xf4\x01\x00", ("TLS", "security.protocol=PLAINTEXT")),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", ("SSH", "port number")),
    ],
)
def test_wrong_protocol_is_logged_once_with_a_remedy(
    first_bytes: bytes, words: tuple[str, ...], log_lines: list[str]
) -> None:
    # The bound is so large that these bytes are a valid size.
    harness = ConnectionHarness(socket_request_max_bytes=2**31 - 1)
    harness.feed(first_bytes[:3])
    assert not harness.wire.is_closed
    harness.feed(first_bytes[3:])
    assert harness.wire.is_closed
    assert harness.dispatch.started == []
    for _ in range(3):
        harness.connect()
        harness.feed(first_bytes)
    [line] = log_lines
    assert all(word in line for word in words)
    assert line.startswith("192.0.2.1: ")


def test_each_wrong_protocol_of_a_host_is_logged(log_lines: list[str]) -> None:
    harness = ConnectionHarness()
    harness.feed(b"GET / HTTP/1.1\r\n\r\n")
    harness.connect()
    harness.feed(b"\x16\x03\x01\x00\xf4\x01\x00")
    http, tls = log_lines
    assert "HTTP" in http
    assert "TLS" in tls


def test_lost_connection_leaves_nothing_behind() -> None:
    harness = ConnectionHarness(
        queued_max_request_bytes=1_500_000, plog_request_turn_max_requests=2
    )
    shared = harness.shared
    harness.feed(frame(METADATA, "x" * 1_000_000)[:20_000])
    leasing = harness.connection
    waiting = harness.connect()
    harness.feed(frame(METADATA, "x" * 1_000_000))
    queued = harness.connect()
    harness.feed(frame(METADATA, "a") * 5)
    parked = harness.connect()
    harness.feed(frame(PRODUCE, "slow 1") + frame(PRODUCE, "slow 2") + frame(FETCH, "x"))
    assert (shared.memory.waiting, len(shared.run_queue), shared.slots.in_use) == (1, 2, 2)
    assert len(shared) == 4
    for connection in (parked, queued, waiting, leasing):
        connection.lost()
        connection.lost()
    assert (shared.memory.waiting, len(shared.run_queue), shared.slots.in_use) == (0, 0, 0)
    assert shared.memory.used_bytes == 0
    assert len(shared) == 0
    assert shared.closed == 4
    assert harness.dispatch.cancelled == ["slow 1", "slow 2"]


def test_finish_answers_pending_produces_before_it_closes(log_lines: list[str]) -> None:
    harness = ConnectionHarness()
    harness.feed(frame(PRODUCE, "slow"))
    harness.connection.finish("stopping")
    assert not harness.wire.is_closed
    harness.feed(frame(PRODUCE, "too late"))
    harness.dispatch.release("slow")
    assert harness.answers == ["slow"]
    assert harness.wire.is_closed
    harness.ports.settle()
    assert harness.dispatch.started == ["slow"]
    assert log_lines == []


def test_bytes_are_counted() -> None:
    harness = ConnectionHarness()
    harness.feed(frame(METADATA, "a"))
    assert harness.shared.bytes_in == len(frame(METADATA, "a"))
    assert harness.wire.answers == [[response("a")]]


def test_unexpected_exception_of_a_pending_request_is_logged(log_lines: list[str]) -> None:
    harness = ConnectionHarness()
    harness.feed(frame(FETCH, "slow"))
    harness.dispatch.waiting["slow"].fail(ZeroDivisionError("a bug"))
    assert harness.wire.is_closed
    assert "192.0.2.1:40000" in log_lines[0]
    assert "ZeroDivisionError" in log_lines[0]


def test_closing_connection_accepts_no_bytes() -> None:
    harness = ConnectionHarness()
    harness.feed(frame(METADATA, "nonsense"))
    assert len(harness.connection.target()) == 0


@pytest.mark.parametrize("state", ["idle", "parked", "partial", "after a parked one", "greeted"])
def test_lost_connection_is_freed_without_the_garbage_collector(state: str) -> None:
    harness = ConnectionHarness()
    sent = {
        "idle": b"",
        "parked": frame(FETCH, "slow"),
        "partial": frame(FETCH, "ready")[:7],
        "after a parked one": frame(FETCH, "slow") + frame(METADATA, "a"),
        "greeted": frame(METADATA, "a"),
    }
    with no_collector():
        harness.feed(sent[state])
        harness.connection.lost()
        gone = weakref.ref(harness.connection)
        harness.dispatch.waiting.clear()
        harness.wire.connection = None  # As the transport does.
        del harness.connection, harness.wire
        assert gone() is None
