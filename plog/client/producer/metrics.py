"""Producer metrics, with the names that Kafka's producer uses (group producer-metrics).

The engine's thread updates them. sensors.py computes the averages, maxima and rates. Times are in
milliseconds. Source: KIP-13; Kafka 4.3 SenderMetricsRegistry, KafkaProducerMetrics.
"""

from __future__ import annotations

from collections.abc import Callable

from plog.client.sensors import Sensor


class ProducerMetrics:
    """The sensors of one producer."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        begun_s = now_s()
        self._records_sent = Sensor(begun_s)
        self._bytes_sent = Sensor(begun_s)
        self._retries = Sensor(begun_s)
        self._errors = Sensor(begun_s)
        self._splits = Sensor(begun_s)
        self._requests = Sensor(begun_s)
        self._exhaustions = Sensor(begun_s)
        self._batch_size = Sensor(begun_s)
        self._compression_rate = Sensor(begun_s)
        self._queue_ms = Sensor(begun_s)
        self._latency_ms = Sensor(begun_s)
        self._records_by_request = Sensor(begun_s)
        self._record_size = Sensor(begun_s)
        self._throttle_ms = Sensor(begun_s)
        self.requests_in_flight = 0

    def batch_sent(
        self, *, records: int, uncompressed_bytes: int, encoded_bytes: int, queue_ms: float
    ) -> None:
        """Record that a batch was sent."""
        # Metrics are updated for each batch or request, so that individual records do not add any
        # cost.
        now_s = self._now_s()
        self._batch_size.record(encoded_bytes, now_s)
        self._compression_rate.record(encoded_bytes / uncompressed_bytes, now_s)
        self._queue_ms.record(queue_ms, now_s)
        self._record_size.record(uncompressed_bytes, now_s, records)

    def request_sent(self, *, records: int, nbytes: int) -> None:
        """Record that a request was sent."""
        now_s = self._now_s()
        self._requests.record(1, now_s)
        self._records_sent.record(records, now_s)
        self._bytes_sent.record(nbytes, now_s)
        self._records_by_request.record(records, now_s)

    def answered(self, *, latency_s: float, throttle_ms: int) -> None:
        """Record that a response arrived."""
        now_s = self._now_s()
        self._latency_ms.record(latency_s * 1000, now_s)
        self._throttle_ms.record(throttle_ms, now_s)

    def retried(self, records: int) -> None:
        """Record that a batch of `records` records is retried."""
        self._retries.record(records, self._now_s())

    def failed(self, records: int) -> None:
        """Record that a batch of `records` records has failed."""
        self._errors.record(records, self._now_s())

    def split(self) -> None:
        """Record that a batch was too large and has been split."""
        self._splits.record(1, self._now_s())

    def exhausted(self) -> None:
        """Record that a send timed out waiting for buffer memory."""
        self._exhaustions.record(1, self._now_s())

    def snapshot(self) -> dict[str, float]:
        """Return all metrics; averages without values are NaN."""
        now_s = self._now_s()
        totals = {
            "record-send": self._records_sent,
            "record-retry": self._retries,
            "record-error": self._errors,
            "batch-split": self._splits,
            "request": self._requests,
            "byte": self._bytes_sent,
            "buffer-exhausted": self._exhaustions,
        }
        averages = {
            "batch-size": self._batch_size,
            "record-queue-time": self._queue_ms,
            "request-latency": self._latency_ms,
            "produce-throttle-time": self._throttle_ms,
        }
        found: dict[str, float] = {}
        # As in Kafka, counters have a total and a rate; measurements have an average and a maximum.
        for name, sensor in totals.items():
            found[f"{name}-total"] = sensor.total
            found[f"{name}-rate"] = sensor.rate(now_s)
        for name, sensor in averages.items():
            found[f"{name}-avg"] = sensor.average(now_s)
            found[f"{name}-max"] = sensor.maximum(now_s)
        # Kafka has no maximum compression rate. It computes the maximum record size from the
        # largest record of each batch, which this producer does not know.
        found["compression-rate-avg"] = self._compression_rate.average(now_s)
        found["records-per-request-avg"] = self._records_by_request.average(now_s)
        found["record-size-avg"] = self._record_size.average(now_s)
        found["requests-in-flight"] = self.requests_in_flight
        return found
