"""Averages, maxima and rates over windows of time."""

from __future__ import annotations

import math

from plog.client.producer_metrics import Meter, ProducerMetrics, Window


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_nothing_has_no_average() -> None:
    window = Window(Clock())
    assert math.isnan(window.average())
    assert math.isnan(window.maximum())
    assert window.rate() == 0


def test_a_window_forgets_what_lies_two_windows_back() -> None:
    clock = Clock()
    window = Window(clock)
    window.record(10)
    clock.now_s = 31
    window.record(2)
    assert (window.average(), window.maximum()) == (6, 10)
    clock.now_s = 61
    assert (window.average(), window.maximum()) == (2, 2)
    clock.now_s = 200
    assert math.isnan(window.average())


def test_a_rate_is_of_the_time_that_passed() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.add(300)
    clock.now_s = 29.9
    meter.add(300)
    assert 9.9 < meter.rate() < 10.1
    clock.now_s = 100
    assert (meter.rate(), meter.total) == (0, 600)


def test_every_metric_is_there_from_the_start() -> None:
    snapshot = ProducerMetrics(Clock()).snapshot()
    assert snapshot["record-send-total"] == snapshot["record-retry-rate"] == 0
    assert math.isnan(snapshot["request-latency-avg"])
