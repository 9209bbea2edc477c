"""What waits for the records of a shard to become durable: answers, and operations that go on then.

Each entry has the end of the log it waits for. Ends only grow, so entries leave in the order they
came. An answer that is only waiting for the disk is given up after ``offsets.commit.timeout.ms``;
the operation behind it hears the truth whenever it comes.

Source: Kafka 4.0 CoordinatorRuntime.DeferredEventQueue; docs/architecture.md, rule R8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from plog.errors import KafkaError
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.ports import Clock, Later, Timer, Timers


def answer_of(result: Result[Any]) -> Later[Any]:
    """A Later that `tell` will complete; whoever cancels it cancels what the operation waits for.

    Raising nothing: it is made before anything can go wrong.
    """
    response = result.response
    return Later(response.cancel if isinstance(response, Later) else None)


def tell(result: Result[Any], answer: Later[Any]) -> None:
    """The records of `result` are safe."""
    if result.appended is not None:
        result.appended.succeed(None)
    _follow(result, answer)


def _follow(result: Result[Any], answer: Later[Any]) -> None:
    response = result.response
    if not isinstance(response, Later):
        if not answer.done:
            answer.succeed(response)
    elif not answer.done:
        response.then(answer.succeed, answer.fail)


def refuse(result: Result[Any], answer: Later[Any], error: Exception) -> None:
    """The records of `result` are not in the log, or nobody will know whether they stay there."""
    if result.appended is not None:
        result.appended.fail(error)
        if isinstance(result.response, Later):
            _follow(result, answer)  # The operation knows what to tell.
            return
    if not answer.done:
        answer.fail(error)
        if isinstance(result.response, Later):
            result.response.cancel()


class _Entry:
    """A result whose records are not safe yet."""

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
        """Whether somebody waits here for the disk and nothing else."""
        return not self.answer.done and not isinstance(self.result.response, Later)


class DeferredEvents:
    """See the module's text. `timed_out` makes the error for an answer that has waited too long."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        timeout_ms: Callable[[], float],
        timed_out: Callable[[], KafkaError],
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._timed_out = timed_out
        self._on_bug = on_bug
        self._entries: deque[_Entry] = deque()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, result: Result[Any], end_offset: int) -> Later[Any]:
        """Let `result` wait until the log is safe up to `end_offset`; its answer."""
        answer = answer_of(result)
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms()
        self._entries.append(_Entry(result, answer, end_offset, deadline_ms))
        if self._timer is None:
            self._set_timer(self._timeout_ms())
        return answer

    def safe_until(self, end_offset: int) -> None:
        """The log is safe up to `end_offset`: tell who has waited for that."""
        while self._entries and self._entries[0].end_offset <= end_offset:
            entry = self._entries.popleft()
            try:
                tell(entry.result, entry.answer)
            except Exception as error:  # The next ones have waited as well.
                self._on_bug("going on after a coordinator's write", error)
        if not self._entries:
            self._stop_timer()

    def refuse_all(self, error: KafkaError) -> None:
        """Nobody will know what becomes of the records."""
        self._stop_timer()
        entries, self._entries = self._entries, deque()
        for entry in entries:
            try:
                refuse(entry.result, entry.answer, error)
            except Exception as problem:
                self._on_bug("going back after a coordinator's write", problem)

    def _set_timer(self, delay_ms: float) -> None:
        self._timer = self._timers.call_later(max(0.0, delay_ms), self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for entry in list(self._entries):
            if entry.deadline_ms <= now_ms and entry.can_expire:
                entry.answer.fail(self._timed_out())
        later = [one.deadline_ms for one in self._entries if one.deadline_ms > now_ms]
        if later and self._timer is None:
            self._set_timer(min(later) - now_ms)
