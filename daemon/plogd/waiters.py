"""Requests that wait for the same outcome, such as the creation of a topic.

The work does not belong to any of the requests, so it continues when a request is cancelled. A
request that is cancelled or times out is removed immediately. Memory use is therefore limited by
the requests in progress, no matter how long the work takes.

This module is pure, and every package of the broker uses it on the reactor's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from plogd.ports import Later, Timer, Timers

T = TypeVar("T")


class Waiters(Generic[T]):
    """The requests that wait for one outcome.

    Args:
        on_abandoned: called when the last request has been cancelled or has timed out.

    >>> waiters: Waiters[str] = Waiters()
    >>> one, other = waiters.wait(), waiters.wait()
    >>> one.cancel()
    >>> len(waiters)
    1
    """

    __slots__ = ("_on_abandoned", "_timers_by_waiter")

    def __init__(self, on_abandoned: Callable[[], None] = lambda: None) -> None:
        self._on_abandoned = on_abandoned
        self._timers_by_waiter: dict[Later[T], Timer | None] = {}

    def __len__(self) -> int:
        return len(self._timers_by_waiter)

    def wait(self) -> Later[T]:
        """Add a waiter; return the outcome."""
        outcome: Later[T] = Later(lambda: self._give_up(outcome))
        self._timers_by_waiter[outcome] = None
        return outcome

    def wait_until(
        self, timeout_ms: float, timers: Timers, error: Callable[[], Exception]
    ) -> Later[T]:
        """Add a waiter that fails with `error` after `timeout_ms`."""

        def expire() -> None:
            self._give_up(outcome)
            outcome.fail(error())

        # The timer first: if it cannot be set, no waiter without a deadline is left behind.
        timer = timers.call_later(timeout_ms, expire)
        outcome = self.wait()
        self._timers_by_waiter[outcome] = timer
        return outcome

    def succeed(self, value: T) -> None:
        """Complete all waiters with `value`."""
        for outcome in self._take_all():
            outcome.succeed(value)

    def fail(self, error: Exception) -> None:
        """Fail all waiters with `error`."""
        for outcome in self._take_all():
            outcome.fail(error)

    def _take_all(self) -> list[Later[T]]:
        # Replaced first, because a waiter's continuation may add another waiter.
        waiting, self._timers_by_waiter = self._timers_by_waiter, {}
        for timer in waiting.values():
            if timer is not None:
                timer.cancel()
        return list(waiting)

    def _give_up(self, outcome: Later[T]) -> None:
        if outcome not in self._timers_by_waiter:
            # The outcome is being delivered.
            return
        timer = self._timers_by_waiter.pop(outcome)
        if timer is not None:
            timer.cancel()
        if not self._timers_by_waiter:
            # Only the last waiter, because the others still need the outcome.
            self._on_abandoned()
