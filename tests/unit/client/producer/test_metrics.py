"""Metrics of a producer under their names."""

from __future__ import annotations

import math

from plog.client.producer.metrics import ProducerMetrics


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_every_metric_exists_from_the_start() -> None:
    snapshot = ProducerMetrics(Clock()).snapshot()
    assert snapshot["record-send-total"] == snapshot["record-retry-rate"] == 0
    assert math.isnan(snapshot["request-latency-avg"])


def test_batch_metrics_count_records() -> None:
    metrics = ProducerMetrics(Clock())
    metrics.batch_sent(records=3, uncompressed_bytes=300, encoded_bytes=150, queue_ms=4)
    metrics.batch_sent(records=1, uncompressed_bytes=500, encoded_bytes=500, queue_ms=6)
    snapshot = metrics.snapshot()
    assert snapshot["record-size-avg"] == 200
    assert (snapshot["batch-size-avg"], snapshot["batch-size-max"]) == (325, 500)
    assert (snapshot["compression-rate-avg"], snapshot["record-queue-time-avg"]) == (0.75, 5)


def test_request_metrics_count_records_and_bytes_per_second() -> None:
    clock = Clock()
    metrics = ProducerMetrics(clock)
    metrics.request_sent(records=300, nbytes=600)
    clock.now_s = 29
    metrics.request_sent(records=290, nbytes=580)
    metrics.answered(latency_s=0.25, throttle_ms=7)
    snapshot = metrics.snapshot()
    assert (snapshot["record-send-total"], snapshot["record-send-rate"]) == (590, 10)
    assert (snapshot["byte-rate"], snapshot["request-total"]) == (20, 2)
    assert snapshot["records-per-request-avg"] == 295
    assert (snapshot["request-latency-max"], snapshot["produce-throttle-time-avg"]) == (250, 7)
    clock.now_s = 100
    assert (metrics.snapshot()["record-send-rate"], snapshot["request-rate"]) == (0, 2 / 59)


def test_failures_have_their_own_metrics() -> None:
    metrics = ProducerMetrics(Clock())
    metrics.retried(5)
    metrics.failed(3)
    metrics.split()
    metrics.exhausted()
    snapshot = metrics.snapshot()
    names = ("record-retry", "record-error", "batch-split", "buffer-exhausted")
    assert [snapshot[f"{name}-total"] for name in names] == [5, 3, 1, 1]
