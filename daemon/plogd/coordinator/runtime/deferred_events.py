"""Deferred events: responses and operations that wait until a shard's records are durable.

Each event waits for the log to be durable up to an offset. These offsets only grow, so events
complete in order of arrival. An answer that waits only for the disk fails after
``offsets.commit.timeout.ms``; the operation itself still receives the actual outcome later.

Source: Kafka 4.0 CoordinatorRuntime.DeferredEventQueue; docs/architecture.md, rule R8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from plog.errors import KafkaError
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.ports import Clock, Later, Timer, Timers


def new_answer(result: Result[Any]) -> Later[Any]:
    """Return a Later for `complete` or `fail`; cancelling it cancels the operation's response.

    Never raises.
    """
    response = result.response
    return Later(response.cancel if isinstance(response, Later) else None)


def complete(result: Result[Any], answer: Later[Any]) -> None:
    """Complete `answer` with the response of `result`, whose records are durable."""
    # Complete `appended` first, so that the operation applies its change: as soon as the client has
    # the response, it may send its next request.
    if result.appended is not None:
        result.appended.succeed(None)
    _forward_response(result, answer)


def _forward_response(result: Result[Any], answer: Later[Any]) -> None:
    response = result.response
    if not isinstance(response, Later):
        # If the client has disconnected, the answer was cancelled.
        if not answer.done:
            answer.succeed(response)
    elif not answer.done:
        response.then(answer.succeed, answer.fail)


def fail(result: Result[Any], answer: Later[Any], error: Exception) -> None:
    """Fail `result`, whose records are not in the log or may not stay there."""
    if result.appended is not None:
        result.appended.fail(error)
        if isinstance(result.response, Later):
            _forward_response(result, answer)  # The operation determines the response.
            return
    if not answer.done:
        answer.fail(error)
        if isinstance(result.response, Later):
            result.response.cancel()


class _Event:
    """A result whose records are not durable yet."""

    __slots__ = ("answer", "deadline_ms", "end_offset", "result")

    def __init__(
        self, result: Result[Any], answer: Later[Any], end_offset: int, deadline_ms: float
    ) -> None:
        self.result = result
        self.answer = answer
        self.end_offset = end_offset
        self.deadline_ms = deadline_ms

    @property
    def can_expire(self) -> bool:
        """Whether the answer is pending and waits only for the disk."""
        # A Later also waits for other members, but the group's own timeouts limit that wait.
        return not self.answer.done and not isinstance(self.result.response, Later)


class DeferredEvents:
    """The deferred events of one shard. `timeout_error` creates the error for an expired answer."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        timeout_ms: Callable[[], float],
        timeout_error: Callable[[], KafkaError],
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._timeout_error = timeout_error
        self._on_bug = on_bug
        self._events: deque[_Event] = deque()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._events)

    def add(self, result: Result[Any], end_offset: int) -> Later[Any]:
        """Return an answer that completes when the log is durable up to `end_offset`."""
        answer = new_answer(result)
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms()
        self._events.append(_Event(result, answer, end_offset, deadline_ms))
        if self._timer is None:
            self._set_timer(self._timeout_ms())
        return answer

    def complete_up_to(self, end_offset: int) -> None:
        """Complete the events that wait for the log up to `end_offset`, which is durable."""
        while self._events and self._events[0].end_offset <= end_offset:
            # Remove the event before it completes, because a callback may call this method again.
            event = self._events.popleft()
            try:
                complete(event.result, event.answer)
            except Exception as error:  # The remaining events must complete, too.
                self._on_bug("completing a coordinator write", error)
        if not self._events:
            self._stop_timer()

    def fail_all(self, error: KafkaError) -> None:
        """Fail all events, because the outcome of their records can no longer be observed."""
        self._stop_timer()
        # Replaced before the loop, because callbacks may add events.
        events, self._events = self._events, deque()
        for event in events:
            try:
                fail(event.result, event.answer, error)
            except Exception as problem:
                self._on_bug("rolling back a coordinator write", problem)

    def _set_timer(self, delay_ms: float) -> None:
        self._timer = self._timers.call_later(max(0.0, delay_ms), self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        # Iterate over a copy, because failing an answer may add events. An expired event stays in
        # the queue, because its operation still needs the outcome.
        for event in list(self._events):
            if event.deadline_ms <= now_ms and event.can_expire:
                event.answer.fail(self._timeout_error())
        later = [event.deadline_ms for event in self._events if event.deadline_ms > now_ms]
        if later and self._timer is None:
            self._set_timer(min(later) - now_ms)
