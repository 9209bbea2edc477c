"""Sending no faster than somebody wants."""

from __future__ import annotations

from collections.abc import Callable

_WORTH_WAITING_S = 0.002
"""To wait for less costs more than it is."""


class Throttle:
    """Holds a loop to `rate` turns a second; without limit if that is negative.

    `wait` sleeps for seconds, and may return early.
    """

    def __init__(
        self, rate: float, *, now_s: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        self._rate = rate
        self._now_s = now_s
        self._wait = wait
        self._begin_s = now_s()

    def pace(self, done: int) -> None:
        """Wait if `done` turns are too many for the time that has passed."""
        if self._rate < 0:
            return
        if self._rate == 0:
            self._wait(float("inf"))
            return
        ahead_s = done / self._rate - (self._now_s() - self._begin_s)
        if ahead_s >= _WORTH_WAITING_S:
            self._wait(ahead_s)
