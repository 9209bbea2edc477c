"""Speed and order in which ``plog replay`` sends records. Pure.

With a factor such as 10x, records from all partitions are sent in the order of their timestamps.
Within a partition, records always keep their order, even if their timestamps are not in order.
"""

from __future__ import annotations

import argparse
import heapq
import re
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from plog.client.values import ConsumerRecord

_SPEED: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>x|/s)")


class Speed(NamedTuple):
    """A factor of the original speed, or a rate in records per second; full speed if neither."""

    factor: float | None = None
    rate: float | None = None


def speed(text: str) -> Speed:
    """Parse ``max``, ``10x`` or ``500/s``.

    >>> speed("0.5x"), speed("500/s"), speed("max")
    (Speed(factor=0.5, rate=None), Speed(factor=None, rate=500.0), Speed(factor=None, rate=None))
    """
    if text == "max":
        return Speed()
    match = _SPEED.fullmatch(text)
    # With a speed of 0, no record would ever be due.
    if match is None or float(match["number"]) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a speed such as 1x, 10x, 500/s or max")
    number = float(match["number"])
    return Speed(factor=number) if match["unit"] == "x" else Speed(rate=number)


class TimePace:
    """Computes when records are due from their timestamps; no pause exceeds `longest_s`."""

    def __init__(self, factor: float, longest_s: float) -> None:
        self._factor = factor
        self._longest_s = longest_s
        self._begin_s: float | None = None
        self._first_ms = 0

    def wait_s(self, timestamp_ms: int, now_s: float) -> float:
        """Return the time to wait before sending a record, or 0 if it is due."""
        if self._begin_s is None:
            self._begin_s, self._first_ms = now_s, timestamp_ms
        # Relative to the first record, so that inaccurate waits do not accumulate.
        due_s = self._begin_s + (timestamp_ms - self._first_ms) / 1000 / self._factor
        wait_s = due_s - now_s
        if wait_s > self._longest_s:
            # The schedule is shifted, so that the pauses after this record are not
            # shortened.
            self._begin_s -= wait_s - self._longest_s
            return self._longest_s
        return max(0.0, wait_s)


class TimeOrder:
    """Merges records from several partitions by timestamp."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self._waiting: dict[int, deque[ConsumerRecord]] = {x: deque() for x in partitions}
        self._awaited = set(self._waiting)
        """Unfinished partitions without waiting records; their next record may be the earliest."""
        self._finished: set[int] = set()
        self._heads: list[tuple[int, int]] = []

    def add(self, record: ConsumerRecord) -> None:
        """Add the next record from a partition."""
        waiting = self._waiting[record.partition]
        waiting.append(record)
        if len(waiting) == 1:
            self._awaited.discard(record.partition)
            heapq.heappush(self._heads, (record.timestamp, record.partition))

    def finish(self, partition: int) -> None:
        """Mark a partition as finished: it does not have any more records."""
        self._awaited.discard(partition)
        self._finished.add(partition)

    def waiting(self, partition: int) -> int:
        """Return the number of a partition's waiting records."""
        return len(self._waiting[partition])

    def pop(self) -> ConsumerRecord | None:
        """Remove and return the earliest record, or return None if it is not known yet."""
        if self._awaited or not self._heads:
            return None
        # The heap only contains the first record of each partition, so records of a partition keep
        # their order.
        _, partition = heapq.heappop(self._heads)
        waiting = self._waiting[partition]
        record = waiting.popleft()
        if waiting:
            heapq.heappush(self._heads, (waiting[0].timestamp, partition))
        # A finished partition must not be awaited, or the others would wait forever.
        elif partition not in self._finished:
            self._awaited.add(partition)
        return record
