"""Throughput and latency of sent records, computed and printed as in Kafka's producer perf test.

Latencies are whole milliseconds. Source: Kafka 4.3 ProducerPerformance.Stats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_SAMPLES_MAX: Final = 500_000
"""Kafka's limit on stored latencies: from a million records on, only every nth is stored."""
_MIB: Final = 1024 * 1024
_SHARES: Final = (0.5, 0.95, 0.99, 0.999)


class Statistics:
    """Measurements since `start_ms`, and since the last report."""

    def __init__(
        self, expected: int, start_ms: int, interval_ms: int, *, is_steady: bool = False
    ) -> None:
        self._start_ms = start_ms
        self._interval_ms = interval_ms
        self._is_steady = is_steady
        # This is Kafka's formula, so both tools sample the same records.
        self._sampling = max(1, expected // min(max(expected, 1), _SAMPLES_MAX))
        self._latencies: list[int] = []
        self.count = 0
        self._bytes = self._total_ms = self._max_ms = 0
        self._window_start_ms = start_ms
        self._window_count = self._window_bytes = 0
        self._window_total_ms = self._window_max_ms = 0

    def record(self, latency_ms: int, size_bytes: int) -> None:
        """Record an acknowledgment."""
        if self.count % self._sampling == 0:
            self._latencies.append(latency_ms)
        self.count += 1
        self._bytes += size_bytes
        self._total_ms += latency_ms
        self._window_count += 1
        self._window_bytes += size_bytes
        self._window_total_ms += latency_ms
        # This runs for each record. A run's maximum is never below the window's maximum, so usually
        # one comparison is enough.
        if latency_ms > self._window_max_ms:
            self._window_max_ms = latency_ms
            self._max_ms = max(self._max_ms, latency_ms)

    def report(self, now_ms: int) -> str | None:
        """Return the line for the time since the last report, or None before the interval ends."""
        elapsed_ms = now_ms - self._window_start_ms
        if elapsed_ms < self._interval_ms:
            return None
        count = self._window_count
        is_first = self._is_steady and count == self.count
        # As in Kafka's tool, only the first line after the warm-up has a heading.
        line = "In steady state.\n" if is_first else ""
        line += (
            f"{count} records sent, {_rate(count, elapsed_ms):.1f} records/sec"
            f" ({_rate(self._window_bytes, elapsed_ms) / _MIB:.2f} MB/sec),"
            f" {self._window_total_ms / count if count else 0:.1f} ms avg latency,"
            f" {self._window_max_ms:.1f} ms max latency."
        )
        self._begin_window(now_ms)
        return line

    def total(self, now_ms: int) -> str:
        """Return the line for the entire run."""
        elapsed_ms = now_ms - self._start_ms
        mean_ms = self._total_ms / self.count if self.count else 0
        shares = zip(("50th", "95th", "99th", "99.9th"), percentiles(self._latencies), strict=True)
        return (
            f"{self.count}{' steady state' if self._is_steady else ''} records sent,"
            f" {_rate(self.count, elapsed_ms):f} records/sec"
            f" ({_rate(self._bytes, elapsed_ms) / _MIB:.2f} MB/sec), {mean_ms:.2f} ms avg latency,"
            f" {self._max_ms:.2f} ms max latency, "
            + ", ".join(f"{value} ms {name}" for name, value in shares)
            + "."
        )

    def _begin_window(self, now_ms: int) -> None:
        self._window_start_ms = now_ms
        self._window_count = self._window_bytes = 0
        self._window_total_ms = self._window_max_ms = 0


def percentiles(values: Sequence[int], shares: Sequence[float] = _SHARES) -> list[int]:
    """Return the percentiles of `values` for the given fractions; 0 if `values` is empty.

    >>> percentiles(range(1000))
    [500, 950, 990, 999]
    """
    ordered = sorted(values)
    # Kafka's definition, which does not interpolate between values.
    return [ordered[int(share * len(ordered))] if ordered else 0 for share in shares]


def _rate(count: float, elapsed_ms: float) -> float:
    # A short test can end within the millisecond in which it started.
    return 1000 * count / elapsed_ms if elapsed_ms > 0 else 0.0


def metrics_lines(metrics: dict[str, float], group: str, client_id: str) -> list[str]:
    """Return metrics as lines, in the format of Kafka's tools.

    >>> metrics_lines({"a": 1.0}, "producer-metrics", "c")[1]
    'producer-metrics:a:{client-id=c} : 1.000'
    """
    names = {f"{group}:{name}:{{client-id={client_id}}}": metrics[name] for name in sorted(metrics)}
    width = max(map(len, names), default=0)
    lines = [f"{name:<{width}} : {value:.3f}" for name, value in names.items()]
    return [f"{'Metric Name':<{width}}   Value", *lines]
