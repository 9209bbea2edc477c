"""Limit the rate of a loop."""

from __future__ import annotations

from collections.abc import Callable

_MIN_WAIT_S = 0.002
"""Shorter waits are skipped: the call would take longer than the wait."""


class Throttle:
    """Limits a loop to `rate` iterations per second; a negative rate means no limit.

    `wait` sleeps for a number of seconds and may return early.
    """

    def __init__(
        self, rate: float, *, now_s: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        self._rate = rate
        self._now_s = now_s
        self._wait = wait
        self._begin_s = now_s()

    def pace(self, done: int) -> None:
        """Wait if `done` iterations exceed the rate."""
        if self._rate < 0:
            return
        if self._rate == 0:
            self._wait(float("inf"))
            return
        ahead_s = done / self._rate - (self._now_s() - self._begin_s)
        if ahead_s >= _MIN_WAIT_S:
            self._wait(ahead_s)
