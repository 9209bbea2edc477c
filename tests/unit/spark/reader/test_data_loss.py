"""Missing records are found by comparing a range with the bounds of its log."""

from __future__ import annotations

import pytest

from plog.spark.reader.data_loss import LogBounds, data_loss_error, within_log
from plog.spark.reader.offset_range import OffsetRange
from plog.types import TopicPartition

T0 = TopicPartition("t", 0)


def of(start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=T0, start_offset=start, end_offset=end)


@pytest.mark.parametrize("wanted", [of(3, 9), of(4, 5), of(20, 20), of(0, 0), of(50, 9)])
def test_range_within_the_log_stays(wanted: OffsetRange) -> None:
    assert within_log(wanted, LogBounds(3, 9)) == (wanted, [])


def test_deleted_records_are_described() -> None:
    found, [loss] = within_log(of(0, 9), LogBounds(3, 9))
    assert found == of(3, 9)
    assert loss.startswith("offsets 0 to 2 of t-0 are missing: its log starts at 3, because ret")


def test_records_past_the_end_are_described() -> None:
    found, [loss] = within_log(of(5, 20), LogBounds(3, 9))
    assert found == of(5, 9)
    assert loss.startswith("offsets 9 to 19 of t-0 are missing: its log ends at 9, because it was")


def test_both_losses_are_described() -> None:
    found, losses = within_log(of(0, 20), LogBounds(3, 9))
    assert found == of(3, 9)
    assert len(losses) == 2


@pytest.mark.parametrize(
    ("wanted", "log", "missing"),
    [
        (of(0, 2), LogBounds(3, 9), "offsets 0 to 1 of t-0"),
        (of(10, 12), LogBounds(3, 9), "offsets 10 to 11 of t-0"),
        (of(0, 2), LogBounds(0, 0), "offsets 0 to 1 of t-0"),
    ],
)
def test_completely_missing_range_becomes_empty(
    wanted: OffsetRange, log: LogBounds, missing: str
) -> None:
    found, [loss] = within_log(wanted, log)
    assert found.size == 0
    assert loss.startswith(missing)


def test_error_names_the_option_to_continue() -> None:
    assert str(data_loss_error(["a", "b"])) == (
        "cannot read all records of the query: a; b; set failOnDataLoss=false to continue without"
        " them"
    )
