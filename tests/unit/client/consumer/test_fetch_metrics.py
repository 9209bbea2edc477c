"""The metrics of fetching; those of a whole consumer are in test_core.py."""

from __future__ import annotations

import math

from twisted.internet.task import Clock

from plog.client.consumer.fetch_metrics import FetchMetrics
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.network.twisted_network import DeferredNetwork
from plog.types import TopicPartition


def test_metrics_without_values_are_nan() -> None:
    clock = Clock()
    network = DeferredNetwork(clock)  # type: ignore[arg-type]
    positions = SubscriptionState()
    positions.assign([TopicPartition("t", 0)])
    values = FetchMetrics(network, positions).values()
    for name in ("fetch-latency-avg", "records-lag-max", "records-lag{topic=t,partition=0}"):
        assert math.isnan(values[name])
    for name in ("fetch-total", "records-consumed-total", "bytes-consumed-rate"):
        assert values[name] == 0


def test_metrics_return_averages_and_totals() -> None:
    clock = Clock()
    network = DeferredNetwork(clock)  # type: ignore[arg-type]
    metrics = FetchMetrics(network, SubscriptionState())
    metrics.fetched(latency_s=0.010, size_bytes=100, throttle_ms=0)
    clock.advance(1.0)
    metrics.fetched(latency_s=0.030, size_bytes=300, throttle_ms=50)
    metrics.took(3)
    metrics.fetch_consumed(400, 3)
    values = metrics.values()
    assert (values["fetch-latency-avg"], values["fetch-latency-max"]) == (20, 30)
    assert (values["fetch-size-avg"], values["fetch-size-max"]) == (200, 300)
    assert (values["fetch-throttle-time-avg"], values["fetch-throttle-time-max"]) == (25, 50)
    assert (values["fetch-total"], values["bytes-consumed-total"]) == (2, 400)
    assert (values["records-consumed-total"], values["records-per-request-avg"]) == (3, 3)
    assert values["fetch-rate"] == 2 / 31
