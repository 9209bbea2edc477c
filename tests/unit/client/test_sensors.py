"""Averages, maxima and rates over the last windows."""

from __future__ import annotations

import math

from plog.client.sensors import Sensor


def test_sensor_returns_average_and_maximum() -> None:
    sensor = Sensor(0.0)
    for value in (1, 5, 3):
        sensor.record(value, 1.0)
    assert (sensor.average(2.0), sensor.maximum(2.0), sensor.count, sensor.total) == (3, 5, 3, 9)


def test_values_older_than_all_windows_count_only_in_totals() -> None:
    sensor = Sensor(0.0, windows=2, window_s=10)
    sensor.record(100, 1.0)
    sensor.record(2, 12.0)
    assert sensor.maximum(13.0) == 100
    assert sensor.maximum(21.0) == 2
    sensor.record(4, 23.0)
    assert (sensor.average(24.0), sensor.total) == (3, 106)


def test_empty_sensor_returns_nan_and_a_rate_of_zero() -> None:
    sensor = Sensor(0.0)
    assert math.isnan(sensor.average(1.0))
    assert math.isnan(sensor.maximum(1.0))
    assert (sensor.rate(1.0), sensor.frequency(1.0)) == (0, 0)
    sensor.record(1, 1.0)
    assert math.isnan(sensor.maximum(1000.0))


def test_rate_includes_elapsed_time_and_a_missing_window() -> None:
    sensor = Sensor(0.0, windows=2, window_s=10)
    sensor.record(60, 1.0)
    sensor.record(60, 2.0)
    assert (sensor.rate(2.0), sensor.frequency(2.0)) == (10, 2 / 12)
    sensor.record(180, 11.0)
    assert sensor.rate(20.0) == 15
    assert sensor.rate(100.0) == 0


def test_recorded_sum_counts_as_several_values() -> None:
    sensor = Sensor(0.0)
    sensor.record(12, 1.0, 3)
    sensor.record(8, 1.0)
    assert (sensor.average(1.0), sensor.count, sensor.total) == (5, 4, 20)
