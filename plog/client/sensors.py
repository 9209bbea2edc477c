"""Sensors for client metrics: averages, maxima and rates over about a minute.

A `Sensor` keeps the count, sum and maximum of each of the last few time windows and drops older
windows. The module does not read a clock: each call takes the current time in seconds. Source:
Kafka 4.3 SampledStat and Rate, with metrics.num.samples windows of metrics.sample.window.ms.
"""

from __future__ import annotations

import math
from collections import deque


class _Window:
    __slots__ = ("begins_s", "count", "maximum", "total")

    def __init__(self, begins_s: float) -> None:
        self.begins_s = begins_s
        self.count = 0
        self.total = 0.0
        self.maximum = -math.inf


class Sensor:
    """A measured quantity; `count` and `total` cover all values since the sensor was created.

    Only one thread may record values; any thread may read them.
    """

    __slots__ = ("_current", "_window_s", "_windows", "count", "total")

    def __init__(self, now_s: float, *, windows: int = 2, window_s: float = 30.0) -> None:
        self.count = 0
        self.total = 0.0
        self._window_s = window_s
        self._current = _Window(now_s)
        self._windows = deque((self._current,), maxlen=max(1, windows))

    def record(self, value: float, now_s: float, times: int = 1) -> None:
        """Record `times` values; `value` is their sum."""
        self.count += times
        self.total += value
        window = self._current
        if now_s - window.begins_s >= self._window_s:
            window = self._current = _Window(now_s)
            # `maxlen` drops the oldest window.
            self._windows.append(window)
        window.count += times
        window.total += value
        if value > window.maximum:
            window.maximum = value

    def _recent(self, now_s: float) -> list[_Window]:
        # Without new values, no window is replaced, so old windows must be skipped here.
        oldest_s = now_s - self._window_s * (self._windows.maxlen or 1)
        # Another thread may append a window concurrently, so iterate over a copy.
        windows = tuple(self._windows)
        return [window for window in windows if window.begins_s >= oldest_s]

    def average(self, now_s: float) -> float:
        """Return the mean of recent values, or NaN if no values are recent."""
        recent = self._recent(now_s)
        count = sum(window.count for window in recent)
        return sum(window.total for window in recent) / count if count else math.nan

    def maximum(self, now_s: float) -> float:
        """Return the largest recent value, or NaN if no values are recent."""
        found = max((window.maximum for window in self._recent(now_s)), default=-math.inf)
        return found if found > -math.inf else math.nan

    def rate(self, now_s: float) -> float:
        """Return the sum of recent values divided by the elapsed seconds."""
        return sum(window.total for window in self._recent(now_s)) / self._elapsed_s(now_s)

    def frequency(self, now_s: float) -> float:
        """Return the number of recent values per second."""
        return sum(window.count for window in self._recent(now_s)) / self._elapsed_s(now_s)

    def _elapsed_s(self, now_s: float) -> float:
        """Return the seconds since the oldest window began, counting missing windows as elapsed."""
        recent = self._recent(now_s)
        passed_s = now_s - recent[0].begins_s if recent else 0.0
        # As in Kafka's Rate, all windows except the current one are treated as complete. Otherwise,
        # a burst right after startup would appear as an enormous rate.
        missing = (self._windows.maxlen or 1) - 1 - int(passed_s / self._window_s)
        # At least 1 ms, to avoid a division by zero.
        return max(passed_s + max(0, missing) * self._window_s, 1e-3)
