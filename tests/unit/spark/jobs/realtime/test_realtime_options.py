"""plog/spark/jobs/realtime/realtime_options.py: wrong options are found before Spark starts."""

from __future__ import annotations

from typing import Any

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.job_source import JobSource
from plog.spark.jobs.realtime.realtime_options import RealtimeOptions
from plog.spark.jobs.value_format import ValueFormat

SOURCE = JobSource(bootstrap_servers="b:1", topics=("t",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": "soon"}, "cannot use the window 'soon': write a duration"),
        ({"slide": "0 minutes"}, "cannot use the slide"),
        ({"by": "page"}, "cannot find page: the values are not decoded"),
        ({"console": False}, "cannot show the results"),
    ],
)
def test_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RealtimeOptions(source=SOURCE, checkpoint="c", **options)


def test_field_of_a_decoded_value_is_accepted() -> None:
    values = ValueFormat(name="json", schema="page string")
    assert RealtimeOptions(source=SOURCE, checkpoint="c", values=values, by="page").by == "page"
