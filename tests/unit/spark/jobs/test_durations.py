"""plog/spark/jobs/durations.py: durations that Spark accepts and that are longer than zero."""

from __future__ import annotations

import pytest

from plog.spark.jobs.durations import duration_problems


@pytest.mark.parametrize("text", ["1 minute", "500 milliseconds", "10 days", None])
def test_duration_is_accepted(text: str | None) -> None:
    assert duration_problems({"gap": text}) == []


@pytest.mark.parametrize("text", ["", "5", "0 minutes", "-1 hour", "1 month", "1 minute 5 seconds"])
def test_other_text_is_refused(text: str) -> None:
    [problem] = duration_problems({"gap": text})
    assert problem == f"cannot use the gap {text!r}: write a duration such as '5 minutes'"
