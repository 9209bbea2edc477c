"""plog/cli/throttle.py: waits of a loop that is ahead of its rate."""

from __future__ import annotations

import pytest

from plog.cli.throttle import Throttle


class FakeTime:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now_s += seconds


def _throttle(rate: float) -> tuple[Throttle, FakeTime]:
    time = FakeTime()
    return Throttle(rate, now_s=lambda: time.now_s, wait=time.wait), time


def test_loop_ahead_of_its_rate_waits() -> None:
    throttle, time = _throttle(10)
    for done in range(1, 21):
        throttle.pace(done)
    assert time.now_s == pytest.approx(102)


def test_slow_loop_catches_up_without_waiting() -> None:
    throttle, time = _throttle(10)
    time.now_s += 5
    throttle.pace(50)
    assert time.waits == []
    throttle.pace(51)
    assert time.waits == [pytest.approx(0.1)]


def test_short_waits_are_skipped_and_accumulate() -> None:
    throttle, time = _throttle(1000)
    throttle.pace(1)
    assert time.waits == []
    throttle.pace(2)
    assert time.waits == [pytest.approx(0.002)]


def test_negative_rate_never_waits_and_zero_rate_waits_forever() -> None:
    throttle, time = _throttle(-1)
    throttle.pace(10**9)
    assert time.waits == []
    throttle, time = _throttle(0)
    throttle.pace(1)
    assert time.waits == [float("inf")]
