"""Waits that do not cancel the work, timeouts, and operations that run sequentially.

Creating a topic takes several writes, and a client that disconnects must not stop the creation
halfway. Therefore, each waiter gets a copy of the outcome, and cancelling the copy does not cancel
the work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from plogd.ports import Later, Timers, spawn

T = TypeVar("T")


def shielded(work: Later[T]) -> Later[T]:
    """Return a Later with the outcome of `work`; cancelling this Later does not cancel the work.

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
    """Return the outcome of `work`; fail with `error` after `timeout_ms`, without cancelling it."""
    expired = False

    # After the timeout, the work still completes, and its outcome is dropped.
    def give_up() -> None:
        nonlocal expired
        expired = True
        outcome.fail(error())

    timer = timers.call_later(max(0.0, timeout_ms), give_up)
    outcome: Later[T] = Later(timer.cancel)

    def on_value(value: T) -> None:
        if not expired:
            # Otherwise, the timer would keep the outcome in memory until the timeout.
            timer.cancel()
            outcome.succeed(value)

    def on_error(problem: Exception) -> None:
        if not expired:
            timer.cancel()
            outcome.fail(problem)

    work.then(on_value, on_error)
    return outcome


class Turns:
    """Grants turns to waiters, one at a time.

    A waiter may finish immediately and grant the next turn during its own. The queue prevents
    recursion: a few hundred such waiters would otherwise exhaust the stack.
    """

    def __init__(self) -> None:
        self._due: deque[Later[None]] = deque()
        self._is_granting = False

    def give(self, turn: Later[None]) -> None:
        """Complete `turn`, after the turns that were granted before it."""
        self._due.append(turn)
        if self._is_granting:
            return
        self._is_granting = True
        try:
            while self._due:
                self._due.popleft().succeed(None)
        finally:
            # Even after an exception, so that later turns are still granted.
            self._is_granting = False


class OneAtATime:
    """Runs operations sequentially, in order of arrival; an operation that runs is `shielded`."""

    def __init__(self) -> None:
        # A dict, because a wait that is cancelled is removed.
        self._waiting: dict[Later[None], None] = {}
        self._turns = Turns()
        self._is_busy = False

    def run(self, operation: Callable[[], Coroutine[Later[Any], Any, T]]) -> Later[T]:
        """Run `operation` after all earlier operations have completed; return its outcome."""
        return shielded(spawn(self._run(operation)))

    def run_unless_cancelled(
        self, operation: Callable[[], Coroutine[Later[Any], Any, T]]
    ) -> Later[T]:
        """Do the same as `run`, but drop `operation` if the Later is cancelled before it begins.

        Otherwise, the operations of clients that have given up would accumulate behind one that
        waits for a long time.
        """
        has_begun = False

        async def begin() -> T:
            nonlocal has_begun
            has_begun = True
            return await operation()

        work = spawn(self._run(begin))
        outcome: Later[T] = Later(lambda: None if has_begun else work.cancel())
        work.then(outcome.succeed, outcome.fail)
        return outcome

    async def _run(self, operation: Callable[[], Coroutine[Later[Any], Any, T]]) -> T:
        if self._is_busy:
            turn: Later[None] = Later(lambda: self._cancel(turn))
            self._waiting[turn] = None
            await turn
        self._is_busy = True
        try:
            return await operation()
        finally:
            self._grant_next()

    def _cancel(self, turn: Later[None]) -> None:
        if turn in self._waiting:
            del self._waiting[turn]
        else:
            # It was granted, but its operation has not been resumed yet.
            self._grant_next()

    def _grant_next(self) -> None:
        if self._waiting:
            # `_is_busy` stays set, so that no new operation overtakes the next one.
            turn = next(iter(self._waiting))
            del self._waiting[turn]
            self._turns.give(turn)
        else:
            self._is_busy = False
