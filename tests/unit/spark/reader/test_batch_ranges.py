"""plan_batch resolves options to the ranges of tasks, with lookups that a test scripts."""

from __future__ import annotations

import logging

import pytest

from plog.spark.options.source_options import read_source_options
from plog.spark.reader.batch_ranges import plan_batch
from plog.spark.reader.data_loss import DataLossError, LogBounds
from plog.spark.reader.log_lookup import NoOffsetForTime
from tests.unit.spark.scripted_lookup import A, B, ScriptedLookup


def plan(lookup: ScriptedLookup | None = None, **options: str) -> list[tuple[int, int, int]]:
    """Return partition, start and end of each task."""
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    made = read_source_options(base | options, is_stream=False)
    tasks = plan_batch(lookup or ScriptedLookup(), made)
    return [(task.partition.partition, task.start_offset, task.end_offset) for task in tasks]


def test_whole_log_is_read_by_default() -> None:
    assert plan() == [(0, 10, 20), (1, 0, 5)]


def test_topic_without_records_has_no_task() -> None:
    assert plan(ScriptedLookup({A: LogBounds(5, 5)})) == []
    assert plan(ScriptedLookup({})) == []


def test_special_offsets_of_single_partitions_are_resolved() -> None:
    ranges = plan(startingoffsets='{"t":{"0":12,"1":-2}}', endingoffsets='{"t":{"0":-1,"1":3}}')
    assert ranges == [(0, 12, 20), (1, 0, 3)]


def test_times_stand_for_the_first_record_at_or_after_them() -> None:
    assert plan(startingtimestamp="3500", endingtimestamp="12000") == [(0, 10, 12), (1, 4, 5)]


def test_time_after_the_last_record_is_an_error() -> None:
    with pytest.raises(NoOffsetForTime, match=r"startingTimestamp=9000: t-1 has no record at or"):
        plan(startingtimestamp="9000")
    with pytest.raises(NoOffsetForTime, match="startingOffsetsByTimestamp=9000: t-1 has"):
        plan(startingoffsetsbytimestamp='{"t":{"0":15000,"1":9000}}')


def test_time_after_the_last_record_is_the_end_when_chosen() -> None:
    options = {"startingtimestamp": "9000", "startingoffsetsbytimestampstrategy": "latest"}
    assert plan(**options) == [(0, 10, 20)]


def test_ending_time_after_the_last_record_is_the_end() -> None:
    assert plan(endingtimestamp="90000") == [(0, 10, 20), (1, 0, 5)]


def test_end_before_the_start_selects_nothing() -> None:
    assert plan(startingtimestamp="4000", endingtimestamp="2000") == []


def test_lost_offsets_fail_the_query() -> None:
    with pytest.raises(DataLossError, match=r"offsets 7 to 9 of t-0 .*; offsets 5 to 8 of t-1 "):
        plan(startingoffsets='{"t":{"0":7,"1":0}}', endingoffsets='{"t":{"0":-1,"1":9}}')


def test_lost_offsets_are_logged_when_permitted(caplog: pytest.LogCaptureFixture) -> None:
    options = {"startingoffsets": '{"t":{"0":7,"1":0}}', "failondataloss": "false"}
    with caplog.at_level(logging.WARNING, "plog.spark"):
        assert plan(**options) == [(0, 10, 20), (1, 0, 5)]
    assert "continuing after data loss: offsets 7 to 9 of t-0 are missing" in caplog.text


def test_limits_divide_the_ranges() -> None:
    assert plan(maxrecordsperpartition="5") == [(0, 10, 15), (0, 15, 20), (1, 0, 5)]
    assert plan(minpartitions="3") == [(0, 10, 15), (0, 15, 20), (1, 0, 5)]


def test_max_bytes_uses_the_average_size_of_records() -> None:
    lookup = ScriptedLookup(sizes={A: 1000, B: 5})
    assert plan(lookup, maxbytesperpartition="500") == [(0, 10, 15), (0, 15, 20), (1, 0, 5)]
