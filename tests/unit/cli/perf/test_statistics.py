"""plog/cli/perf/statistics.py: the lines of the perf tests."""

from __future__ import annotations

from plog.cli.perf.statistics import Statistics, metrics_lines, percentiles


def test_total_has_rates_and_latencies() -> None:
    statistics = Statistics(4, 1000, 5000)
    for latency_ms in (1, 2, 3, 10):
        statistics.record(latency_ms, 1024 * 1024)
    assert statistics.total(3000) == (
        "4 records sent, 2.000000 records/sec (2.00 MB/sec), 4.00 ms avg latency,"
        " 10.00 ms max latency, 3 ms 50th, 10 ms 95th, 10 ms 99th, 10 ms 99.9th."
    )


def test_report_covers_the_time_since_the_last_report() -> None:
    statistics = Statistics(4, 0, 1000)
    statistics.record(4, 0)
    assert statistics.report(999) is None
    assert statistics.report(1000) == (
        "1 records sent, 1.0 records/sec (0.00 MB/sec), 4.0 ms avg latency, 4.0 ms max latency."
    )
    statistics.record(2, 0)
    statistics.record(2, 0)
    line = statistics.report(2000)
    assert line is not None
    assert line.startswith("2 records sent, 2.0 records/sec")
    assert "2.0 ms max latency" in line
    assert "4.00 ms max latency" in statistics.total(2000)


def test_steady_state_is_announced_once() -> None:
    statistics = Statistics(4, 0, 10, is_steady=True)
    statistics.record(1, 1)
    first = statistics.report(10)
    statistics.record(1, 1)
    second = statistics.report(20)
    assert first is not None
    assert second is not None
    assert first.splitlines()[0] == "In steady state."
    assert len(second.splitlines()) == 1
    assert statistics.total(20).startswith("2 steady state records sent, ")


def test_statistics_without_records_are_zero() -> None:
    assert Statistics(1, 0, 10).total(0).startswith("0 records sent, 0.000000 records/sec")
    assert percentiles([]) == [0, 0, 0, 0]


def test_latencies_of_many_records_are_sampled() -> None:
    statistics = Statistics(1_500_000, 0, 10)
    for latency_ms in range(9):
        statistics.record(latency_ms, 1)
    assert len(statistics._latencies) == 3


def test_metrics_are_printed_in_columns() -> None:
    head, first, second = metrics_lines({"long-name": 2.0, "a": 1.0}, "g", "c")
    assert head == "Metric Name                 Value"
    assert first == "g:a:{client-id=c}         : 1.000"
    assert second == "g:long-name:{client-id=c} : 2.000"
