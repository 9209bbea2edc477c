"""plog/spark/jobs/late_rows.py: late rows are counted once."""

from __future__ import annotations

from typing import Any

from plog.spark.jobs.late_rows import LateRows


def progress(timestamp: str, *dropped: int) -> dict[str, Any]:
    """Return the progress of a trigger with a number of rows for each state operator."""
    operators = [{"numRowsDroppedByWatermark": number} for number in dropped]
    return {"timestamp": timestamp, "stateOperators": operators}


def test_rows_of_each_trigger_are_counted_once() -> None:
    late = LateRows()
    first, second = progress("2026-01-01T00:00:00.000Z", 1), progress("2026-01-01T00:00:10.000Z")
    third = progress("2026-01-01T00:00:20.000Z", 2, 3)
    assert late.count([first, second]) == 1
    assert late.count([first, second, third]) == 5
    assert late.count([second, third]) == 0


def test_query_without_progress_has_no_late_rows() -> None:
    assert LateRows().count([]) == 0
