"""Fetch metrics, with Kafka's names (group consumer-fetch-manager-metrics).

The engine's thread records fetches, and the consuming thread records the records that are taken.
Only one of these threads updates each sensor. Times are in milliseconds.
"""

from __future__ import annotations

from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.network.ports import Network
from plog.client.sensors import Sensor

_NAN = float("nan")


class FetchMetrics:
    """The fetch sensors of one consumer."""

    def __init__(self, network: Network, positions: SubscriptionState) -> None:
        self._network = network
        self._positions = positions
        now_s = network.now_s()
        self._latency_ms = Sensor(now_s)
        self._size_bytes = Sensor(now_s)
        self._throttle_ms = Sensor(now_s)
        self._records_by_fetch = Sensor(now_s)
        self._records = Sensor(now_s)
        self._bytes = Sensor(now_s)

    def fetched(self, *, latency_s: float, size_bytes: int, throttle_ms: int) -> None:
        """Record that a fetch response arrived."""
        now_s = self._network.now_s()
        self._latency_ms.record(latency_s * 1000, now_s)
        self._throttle_ms.record(throttle_ms, now_s)
        self._size_bytes.record(size_bytes, now_s)

    def took(self, records: int) -> None:
        """Record that one call returned `records` records."""
        self._records.record(records, self._network.now_s())

    def fetch_consumed(self, size_bytes: int, records: int) -> None:
        """Record that all data of one fetched partition was taken."""
        now_s = self._network.now_s()
        self._bytes.record(size_bytes, now_s)
        self._records_by_fetch.record(records, now_s)

    def values(self) -> dict[str, float]:
        """Return all metrics; names with a partition are ``records-lag{topic=…,partition=…}``."""
        now_s = self._network.now_s()
        values = {
            "fetch-latency-avg": self._latency_ms.average(now_s),
            "fetch-latency-max": self._latency_ms.maximum(now_s),
            "fetch-rate": self._latency_ms.frequency(now_s),
            "fetch-total": float(self._latency_ms.count),
            "fetch-size-avg": self._size_bytes.average(now_s),
            "fetch-size-max": self._size_bytes.maximum(now_s),
            "fetch-throttle-time-avg": self._throttle_ms.average(now_s),
            "fetch-throttle-time-max": self._throttle_ms.maximum(now_s),
            "bytes-consumed-rate": self._bytes.rate(now_s),
            "bytes-consumed-total": self._bytes.total,
            "records-consumed-rate": self._records.rate(now_s),
            "records-consumed-total": self._records.total,
            "records-per-request-avg": self._records_by_fetch.average(now_s),
        }
        lags = self._positions.lags()
        known_lags = [lag for lag, _ in lags.values() if lag is not None]
        known_leads = [lead for _, lead in lags.values() if lead is not None]
        # As in Kafka, the value is NaN while no lag is known.
        values["records-lag-max"] = float(max(known_lags, default=_NAN))
        values["records-lead-min"] = float(min(known_leads, default=_NAN))
        # Kafka's metrics have a topic and a partition as tags; here, the tags are part of the name.
        for (topic, partition), (lag, lead) in lags.items():
            tags = f"{{topic={topic},partition={partition}}}"
            values[f"records-lag{tags}"] = _NAN if lag is None else float(lag)
            values[f"records-lead{tags}"] = _NAN if lead is None else float(lead)
        return values
