"""plog/spark/jobs/event_columns.py: names that need decoded values."""

from __future__ import annotations

from plog.spark.jobs.event_columns import RECORD_COLUMNS, column_problems
from plog.spark.jobs.value_format import ValueFormat


def test_fields_need_a_format() -> None:
    assert column_problems(ValueFormat(), RECORD_COLUMNS) == []
    [problem] = column_problems(ValueFormat(), ("key", "user"))
    assert problem.startswith("cannot find user: the values are not decoded; set a format")
    assert column_problems(ValueFormat(name="json", schema="user string"), ("user",)) == []
