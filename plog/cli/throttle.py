"""Rate limit for loops, such as the send loop of the producer performance test."""

from __future__ import annotations

from collections.abc import Callable

_MIN_WAIT_S = 0.002
"""Minimum wait: shorter waits add up until they reach it, as in Kafka's ThroughputThrottler."""


class Throttle:
    """Limits a loop to `rate` iterations per second; a negative rate means no limit.

    `wait` sleeps for a number of seconds, but can return earlier.
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
        if self._rate == 0:  # As in Kafka's tools, the loop then waits until it is interrupted.
            self._wait(float("inf"))
            return
        # Relative to the start of the loop, so that inaccurate waits do not accumulate.
        ahead_s = done / self._rate - (self._now_s() - self._begin_s)
        if ahead_s >= _MIN_WAIT_S:
            self._wait(ahead_s)
