"""Waiting for work that goes on without the one who waits.

Creating a topic is several writes; a client that leaves in the middle must not stop it halfway. So
the work is never cancelled by its waiters: they wait on a copy of its outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from plogd.ports import Later, Timers

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
