"""The order of one connection's requests, without a socket."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plogd.apis.close_connection import CloseConnection
from plogd.net.request_queue import RequestQueue, RequestSlots
from plogd.ports import Cancelled
from tests.helpers.net_parts import (
    FETCH,
    METADATA,
    PRODUCE,
    ScriptedDispatch,
    body,
    joined,
    make_context,
)
from tests.helpers.sim.sim_time import SimClock, SimTimers


class FakeRegion:
    """A region of a file that counts how often it is closed."""

    nbytes = 10

    def __init__(self) -> None:
        self.closes = 0

    def close(self) -> None:
        self.closes += 1


class Harness:
    """A queue and its recorded calls."""

    def __init__(self, slots: RequestSlots | None = None) -> None:
        self.dispatch = ScriptedDispatch()
        self.dispatch.hold = lambda api_key, text: text.startswith("slow")
        self.written: list[Any] = []
        self.closed: list[tuple[str, Exception | None]] = []
        self.ready = 0
        self.slots = slots or RequestSlots(100)
        self.timers = SimTimers(SimClock())
        self.context = make_context()
        self.queue = RequestQueue(
            self.dispatch,
            self.context,
            write=self.written.append,
            close=lambda reason, error: self.closed.append((reason, error)),
            on_ready=self._on_ready,
            slots=self.slots,
            timers=self.timers,
        )

    def _on_ready(self) -> None:
        self.ready += 1

    def offer(self, api_key: int, text: str) -> bool:
        return self.queue.offer(memoryview(bytearray(body(api_key, text))))

    @property
    def answers(self) -> list[str]:
        return [joined(answer)[4:].decode() for answer in self.written]


def test_completed_request_is_answered_immediately() -> None:
    harness = Harness()
    assert harness.offer(METADATA, "a")
    assert harness.answers == ["a"]
    assert harness.queue.in_progress == 0


def test_request_without_a_response_leaves_nothing_pending() -> None:
    harness = Harness()
    harness.dispatch.answer = lambda api_key, text: None
    assert harness.offer(PRODUCE, "acks=0")
    assert harness.written == []
    assert harness.queue.in_progress == 0


def test_produce_after_produce_starts_and_responses_keep_their_order() -> None:
    harness = Harness()
    assert harness.offer(PRODUCE, "slow 1")
    assert harness.offer(PRODUCE, "slow 2")
    assert harness.offer(PRODUCE, "quick 3")
    harness.dispatch.release("slow 2")
    assert harness.answers == []
    harness.dispatch.release("slow 1")
    assert harness.answers == ["slow 1", "slow 2", "quick 3"]
    assert harness.slots.in_use == 0


def test_fetch_after_produce_waits_for_its_response() -> None:
    harness = Harness()
    assert harness.offer(PRODUCE, "slow")
    assert not harness.offer(FETCH, "fetch")
    assert harness.dispatch.started == ["slow"]
    assert harness.ready == 0
    harness.dispatch.release("slow")
    assert harness.ready == 1
    assert harness.offer(FETCH, "fetch")
    assert harness.answers == ["slow", "fetch"]


def test_every_request_waits_for_a_parked_fetch() -> None:
    harness = Harness()
    assert harness.offer(FETCH, "slow fetch")
    assert not harness.offer(PRODUCE, "produce")
    assert not harness.offer(METADATA, "metadata")
    assert harness.dispatch.started == ["slow fetch"]
    harness.dispatch.release("slow fetch")
    assert harness.ready == 1


def test_refused_fetch_becomes_ready_when_the_last_produce_is_answered() -> None:
    harness = Harness()
    harness.offer(PRODUCE, "slow 1")
    harness.offer(PRODUCE, "slow 2")
    assert not harness.offer(FETCH, "fetch")
    harness.dispatch.release("slow 1")
    assert harness.ready == 0
    harness.dispatch.release("slow 2")
    assert harness.ready == 1


def test_pending_fetch_takes_no_produce_slot() -> None:
    harness = Harness()
    harness.offer(FETCH, "slow fetch")
    assert harness.slots.in_use == 0


def test_connection_has_one_pending_produce_beyond_the_limit() -> None:
    slots = RequestSlots(2)
    first, second = Harness(slots), Harness(slots)
    assert first.offer(PRODUCE, "slow 1")
    assert first.offer(PRODUCE, "slow 2")
    assert second.offer(PRODUCE, "slow 3"), "the first produce of a connection may always start"
    assert not second.offer(PRODUCE, "slow 4")
    assert not first.offer(PRODUCE, "slow 5")
    first.dispatch.release("slow 1")
    assert first.ready == 0, "still two"
    second.dispatch.release("slow 3")
    assert second.ready == 1
    first.dispatch.release("slow 2")
    assert first.ready == 1
    assert slots.in_use == 0


def test_lost_connection_cancels_its_waits_once() -> None:
    harness = Harness()
    harness.offer(PRODUCE, "slow 1")
    harness.offer(PRODUCE, "slow 2")
    harness.queue.connection_lost()
    harness.queue.connection_lost()
    assert harness.dispatch.cancelled == ["slow 1", "slow 2"]
    assert harness.written == []
    assert harness.closed == []
    assert harness.slots.in_use == 0
    assert not harness.offer(PRODUCE, "late")


def test_lost_connection_closes_the_regions_of_queued_responses() -> None:
    harness = Harness()
    region: Any = FakeRegion()
    harness.offer(PRODUCE, "slow 1")
    harness.offer(PRODUCE, "slow 2")
    harness.dispatch.waiting["slow 2"].succeed([b"header", region])
    assert region.closes == 0
    harness.queue.connection_lost()
    assert region.closes == 1


def test_response_completed_by_cancelling_another_request_is_closed() -> None:
    harness = Harness()
    region: Any = FakeRegion()
    harness.offer(PRODUCE, "slow 1")
    harness.offer(PRODUCE, "slow 2")
    second = harness.dispatch.waiting["slow 2"]
    # A purgatory may do this: removing one operation completes another one.
    trigger: Any = Trigger(lambda: second.succeed([region]))
    harness.dispatch.cancelled = trigger
    harness.queue.connection_lost()
    assert region.closes == 1
    assert harness.written == []


class Trigger:
    """Replaces the list of cancelled texts, and acts on the first one."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def append(self, _: str) -> None:
        function, self._function = self._function, lambda: None
        function()


def test_invalid_request_closes_the_connection_after_the_earlier_responses() -> None:
    harness = Harness()
    harness.offer(PRODUCE, "slow")
    assert harness.offer(PRODUCE, "nonsense")
    assert harness.closed == []
    assert harness.queue.is_closing
    assert not harness.offer(PRODUCE, "more")
    harness.dispatch.release("slow")
    assert harness.answers == ["slow"]
    assert harness.closed == [("the request is invalid", None)]


def test_invalid_request_closes_the_connection_immediately_when_nothing_is_pending() -> None:
    harness = Harness()
    assert harness.offer(METADATA, "nonsense")
    assert harness.closed == [("the request is invalid", None)]


def test_failed_request_closes_the_connection_in_place_of_its_response() -> None:
    harness = Harness()
    for number in range(3):
        harness.offer(PRODUCE, f"slow {number}")
    harness.dispatch.release("slow 2")
    harness.dispatch.waiting["slow 1"].fail(CloseConnection("acks=0 failed"))
    assert harness.written == []
    harness.dispatch.release("slow 0")
    assert harness.answers == ["slow 0"], "a later response would be matched to the wrong request"
    assert harness.closed == [("acks=0 failed", None)]
    assert harness.slots.in_use == 0


def test_unexpected_exception_of_a_pending_request_is_passed_to_close() -> None:
    harness = Harness()
    harness.offer(FETCH, "slow")
    bug = ZeroDivisionError()
    harness.dispatch.waiting["slow"].fail(bug)
    assert [error for _, error in harness.closed] == [bug]


def test_request_cancelled_by_the_broker_closes_its_connection() -> None:
    harness = Harness()
    harness.offer(FETCH, "slow")
    harness.dispatch.waiting["slow"].fail(Cancelled())
    assert harness.closed == [("its request was cancelled", None)]


def test_finish_closes_after_pending_produces_are_answered() -> None:
    harness = Harness()
    harness.offer(PRODUCE, "slow")
    harness.queue.finish("stopping")
    assert harness.closed == []
    assert not harness.offer(PRODUCE, "more")
    harness.dispatch.release("slow")
    assert harness.answers == ["slow"]
    assert harness.closed == [("stopping", None)]


def test_finish_answers_produces_and_one_that_runs_alone_after_them() -> None:
    harness = Harness()
    assert harness.offer(PRODUCE, "slow")
    assert harness.offer(PRODUCE, "slow alone")
    assert harness.queue.is_parked
    assert not harness.offer(PRODUCE, "more")
    assert harness.slots.in_use == 1
    harness.queue.finish("stopping")
    assert harness.dispatch.cancelled == []
    harness.dispatch.release("slow")
    harness.dispatch.release("slow alone")
    assert harness.answers == ["slow", "slow alone"]
    assert harness.closed == [("stopping", None)]
    assert harness.slots.in_use == 0


def test_finish_cancels_a_long_poll() -> None:
    harness = Harness()
    harness.offer(FETCH, "slow")
    harness.queue.finish("stopping")
    harness.queue.finish("stopping")
    assert harness.dispatch.cancelled == ["slow"]
    assert harness.closed == [("stopping", None)]


def test_request_too_short_for_an_api_key_is_not_a_produce() -> None:
    harness = Harness()
    harness.offer(PRODUCE, "slow")
    assert not harness.queue.offer(memoryview(b"\0"))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([PRODUCE, FETCH]), st.booleans()), max_size=12),
    st.randoms(use_true_random=False),
)
def test_effects_are_serial_and_responses_in_order_with_any_timing(
    requests: list[tuple[int, bool]], chance: Any
) -> None:
    harness = Harness()
    kinds: dict[str, int] = {}
    backlog = []
    for number, (api_key, is_slow) in enumerate(requests):
        text = f"{'slow' if is_slow else 'quick'} {number}"
        kinds[text] = api_key
        backlog.append((api_key, text))
    expected = [text for _, text in backlog]

    def on_start(text: str) -> None:
        unanswered = [t for t in harness.dispatch.started[:-1] if t not in harness.answers]
        assert all(kinds[t] == PRODUCE for t in [*unanswered, text]) or not unanswered

    harness.dispatch.on_start = on_start
    while backlog or harness.dispatch.waiting:
        waiting = sorted(harness.dispatch.waiting)
        if backlog and (not waiting or chance.random() < 0.6) and harness.offer(*backlog[0]):
            backlog.pop(0)
        elif waiting:
            harness.dispatch.release(chance.choice(waiting))
    assert harness.dispatch.started == expected
    assert harness.answers == expected
    assert harness.queue.in_progress == 0
    assert harness.slots.in_use == 0


def mute(harness: Harness, text: str, mute_ms: int) -> None:
    """Throttle this request in its handler."""

    def on_start(started: str) -> None:
        if started == text:
            harness.context.mute_ms = mute_ms

    harness.dispatch.on_start = on_start


def test_throttled_request_is_answered_immediately_and_nothing_starts_during_the_mute() -> None:
    harness = Harness()
    mute(harness, "over", 100)
    assert harness.offer(PRODUCE, "over")
    assert harness.answers == ["over"]
    assert harness.queue.is_muted
    assert not harness.offer(PRODUCE, "produce")
    assert not harness.offer(METADATA, "metadata")
    harness.timers.advance(99)
    assert not harness.offer(METADATA, "metadata")
    assert harness.ready == 0
    harness.timers.advance(1)
    assert harness.ready == 1
    assert harness.offer(METADATA, "metadata")
    assert harness.answers == ["over", "metadata"]


def test_fetch_that_is_throttled_on_completion_mutes_from_then_on() -> None:
    harness = Harness()
    assert harness.offer(FETCH, "slow")
    assert not harness.offer(FETCH, "next")
    harness.context.mute_ms = 50
    harness.dispatch.release("slow")
    assert harness.answers == ["slow"]
    assert harness.ready == 0
    harness.timers.advance(50)
    assert harness.ready == 1


def test_pending_produces_are_answered_during_a_mute() -> None:
    harness = Harness()
    mute(harness, "slow 2", 100)
    assert harness.offer(PRODUCE, "slow 1")
    assert harness.offer(PRODUCE, "slow 2")
    assert not harness.offer(PRODUCE, "slow 3")
    harness.dispatch.release("slow 1")
    harness.dispatch.release("slow 2")
    assert harness.answers == ["slow 1", "slow 2"]
    assert harness.ready == 0
    harness.timers.advance(100)
    assert harness.ready == 1


def test_acks_0_mutes_without_a_response() -> None:
    harness = Harness()
    harness.dispatch.answer = lambda api_key, text: None
    mute(harness, "over", 100)
    assert harness.offer(PRODUCE, "over")
    assert not harness.offer(PRODUCE, "next")
    harness.timers.advance(100)
    assert harness.offer(PRODUCE, "next")


def test_lost_muted_connection_is_not_called() -> None:
    harness = Harness()
    mute(harness, "over", 100)
    harness.offer(PRODUCE, "over")
    harness.offer(PRODUCE, "next")
    harness.queue.connection_lost()
    assert not harness.queue.is_muted
    assert harness.timers.next_due_ms is None
    harness.timers.advance(1000)
    assert harness.ready == 0


def test_muted_connection_can_be_finished() -> None:
    harness = Harness()
    mute(harness, "slow", 100)
    harness.offer(PRODUCE, "slow")
    harness.queue.finish("the broker is stopping")
    assert harness.closed == []
    harness.dispatch.release("slow")
    assert harness.answers == ["slow"]
    assert harness.closed == [("the broker is stopping", None)]
    harness.timers.advance(1000)
    assert harness.ready == 0
