"""What a producer counts, under the names Kafka's producer gives it (group producer-metrics).

Everything is counted by the batch or by the request, in the engine's thread, so that records cost
nothing. Averages, maxima and rates are those of the last window or two of 30 s, as Kafka's are.
Source: KIP-13; Kafka 4.3 SenderMetricsRegistry, KafkaProducerMetrics.
"""

from __future__ import annotations

from collections.abc import Callable

_WINDOW_S = 30.0
_NOTHING = float("nan")


class Window:
    """Sum, number and maximum of what was recorded lately: in the current window and the last."""

    __slots__ = ("_begun_s", "_current", "_last", "_now_s")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._begun_s = now_s()
        self._current = (0.0, 0, -1.0)
        self._last = (0.0, 0, -1.0)

    def record(self, value: float, times: int = 1) -> None:
        """`value` is the sum of `times` of them."""
        self._turn_over()
        total, count, highest = self._current
        self._current = (total + value, count + times, max(highest, value))

    def average(self) -> float:
        """NaN where nothing was recorded, as with Kafka."""
        self._turn_over()
        count = self._current[1] + self._last[1]
        return (self._current[0] + self._last[0]) / count if count else _NOTHING

    def maximum(self) -> float:
        """NaN where nothing was recorded."""
        self._turn_over()
        highest = max(self._current[2], self._last[2])
        return highest if highest >= 0 else _NOTHING

    def rate(self) -> float:
        """The sum for each second; the time that is missing to a whole window counts as passed."""
        self._turn_over()
        elapsed_s = self._now_s() - self._begun_s
        return (self._current[0] + self._last[0]) / (_WINDOW_S + elapsed_s)

    def _turn_over(self) -> None:
        elapsed_s = self._now_s() - self._begun_s
        if elapsed_s < _WINDOW_S:
            return
        windows = int(elapsed_s / _WINDOW_S)
        self._last = self._current if windows == 1 else (0.0, 0, -1.0)
        self._current = (0.0, 0, -1.0)
        self._begun_s += windows * _WINDOW_S


class Meter:
    """A total, and its rate."""

    __slots__ = ("_window", "total")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.total = 0
        self._window = Window(now_s)

    def add(self, value: int = 1) -> None:
        """So many more."""
        self.total += value
        self._window.record(value)

    def rate(self) -> float:
        """How many a second."""
        return self._window.rate()


class ProducerMetrics:
    """See the module's text."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.records_sent = Meter(now_s)
        self.bytes_sent = Meter(now_s)
        self.retries = Meter(now_s)
        self.errors = Meter(now_s)
        self.splits = Meter(now_s)
        self.requests = Meter(now_s)
        self.exhaustions = Meter(now_s)
        self.batch_size = Window(now_s)
        self.compression_rate = Window(now_s)
        self.queue_ms = Window(now_s)
        self.latency_ms = Window(now_s)
        self.records_per_request = Window(now_s)
        self.record_size = Window(now_s)
        self.throttle_ms = Window(now_s)
        self.requests_in_flight = 0

    def batch_sent(
        self, *, records: int, uncompressed_bytes: int, encoded_bytes: int, queue_ms: float
    ) -> None:
        """A batch goes out."""
        self.batch_size.record(encoded_bytes)
        self.compression_rate.record(encoded_bytes / uncompressed_bytes)
        self.queue_ms.record(queue_ms)
        self.record_size.record(uncompressed_bytes, records)

    def request_sent(self, *, records: int, nbytes: int) -> None:
        """A request goes out."""
        self.requests.add()
        self.records_sent.add(records)
        self.bytes_sent.add(nbytes)
        self.records_per_request.record(records)

    def snapshot(self) -> dict[str, float]:
        """All of it now; NaN for averages of nothing."""
        meters = {
            "record-send": self.records_sent,
            "record-retry": self.retries,
            "record-error": self.errors,
            "batch-split": self.splits,
            "request": self.requests,
            "byte": self.bytes_sent,
            "buffer-exhausted": self.exhaustions,
        }
        averages = {
            "batch-size": self.batch_size,
            "record-queue-time": self.queue_ms,
            "request-latency": self.latency_ms,
            "produce-throttle-time": self.throttle_ms,
        }
        found: dict[str, float] = {}
        for name, meter in meters.items():
            found[f"{name}-total"] = meter.total
            found[f"{name}-rate"] = meter.rate()
        for name, window in averages.items():
            found[f"{name}-avg"] = window.average()
            found[f"{name}-max"] = window.maximum()
        found["compression-rate-avg"] = self.compression_rate.average()
        found["records-per-request-avg"] = self.records_per_request.average()
        found["record-size-avg"] = self.record_size.average()
        found["requests-in-flight"] = self.requests_in_flight
        return found
