"""Waiting for work that goes on without the one who waits, and for one's turn.

Creating a topic is several writes; a client that leaves in the middle must not stop it halfway. So
the work is never cancelled by its waiters: they wait on a copy of its outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from plogd.ports import Later, Timers, spawn

T = TypeVar("T")


def shielded(work: Later[T]) -> Later[T]:
    """The outcome of `work`; giving up on it leaves the work alone.

    >>> work: Later[int] = Later()
    >>> shielded(work).cancel()
    >>> work.done
    False
    """
    outcome: Later[T] = Later()
    work.then(outcome.succeed, outcome.fail)
    return outcome


def within(
    work: Later[T], timeout_ms: float, timers: Timers, error: Callable[[], Exception]
) -> Later[T]:
    """The outcome of `work`, or `error` once `timeout_ms` have passed; the work goes on."""
    expired = False

    def give_up() -> None:
        nonlocal expired
        expired = True
        outcome.fail(error())

    timer = timers.call_later(max(0.0, timeout_ms), give_up)
    outcome: Later[T] = Later(timer.cancel)

    def on_value(value: T) -> None:
        if not expired:
            timer.cancel()
            outcome.succeed(value)

    def on_error(problem: Exception) -> None:
        if not expired:
            timer.cancel()
            outcome.fail(problem)

    work.then(on_value, on_error)
    return outcome


class Turns:
    """Tells those who wait that it is their turn, one after the other.

    Whoever has the turn may be done with it at once, and give the next one: not from inside of its
    own, or a few hundred who find that there is nothing left to do would exhaust the stack.
    """

    def __init__(self) -> None:
        self._due: deque[Later[None]] = deque()
        self._is_telling = False

    def give(self, turn: Later[None]) -> None:
        """It is the turn of whoever waits for `turn`."""
        self._due.append(turn)
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._due:
                self._due.popleft().succeed(None)
        finally:
            self._is_telling = False


class OneAtATime:
    """Runs operations one after the other, in the order they came; see `shielded`."""

    def __init__(self) -> None:
        self._waiting: deque[Later[None]] = deque()
        self._turns = Turns()
        self._is_busy = False

    def run(self, operation: Callable[[], Coroutine[Later[Any], Any, T]]) -> Later[T]:
        """The outcome of `operation`, which starts when those before it have ended."""
        return shielded(spawn(self._run(operation)))

    async def _run(self, operation: Callable[[], Coroutine[Later[Any], Any, T]]) -> T:
        if self._is_busy:
            turn: Later[None] = Later()
            self._waiting.append(turn)
            await turn
        self._is_busy = True
        try:
            return await operation()
        finally:
            if self._waiting:
                self._turns.give(self._waiting.popleft())
            else:
                self._is_busy = False
