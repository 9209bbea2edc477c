"""plog/cli/perf/consumer_perf_test.py: options and columns."""

from __future__ import annotations

from plog.cli.parser import tool_parser
from plog.cli.perf.consumer_perf_test import Progress, configure, detailed_line, total_line

MIB = 1024 * 1024


def test_thread_options_are_ignored() -> None:
    line = "--broker-list a:1 --topic t --messages 5 --threads 4 --num-fetch-threads 1"
    assert tool_parser("consumer-perf-test", configure).parse_args(line.split()).num_records == 5


def test_total_line_has_rates_with_and_without_join_time() -> None:
    line = total_line(Progress(0), Progress(4000, 100, 8 * MIB, 2000), "s.SSS")
    assert line == "0.000, 4.000, 8.0000, 2.0000, 100, 25.0000, 2000, 2000, 4.0000, 50.0000"


def test_detailed_line_has_totals_of_the_run_and_rates_of_the_interval() -> None:
    before = Progress(1000, 10, MIB, 500)
    line = detailed_line(before, Progress(2000, 30, 3 * MIB, 500), "s.SSS")
    assert line == "2.000, 0, 3.0000, 2.0000, 30, 20.0000, 0, 1000, 2.0000, 20.0000"


def test_rate_is_zero_when_no_time_has_passed() -> None:
    assert total_line(Progress(0), Progress(0), "s").endswith("0, 0, 0.0000, 0.0000")
