"""plog/spark/jobs/sessions/sessions_options.py: wrong options are found before Spark starts."""

from __future__ import annotations

from typing import Any

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.job_source import JobSource
from plog.spark.jobs.sessions.sessions_options import SessionsOptions
from plog.spark.jobs.value_format import ValueFormat

SOURCE = JobSource(bootstrap_servers="b:1", topics=("t",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gap": "0 minutes"}, "cannot use the gap '0 minutes': write a duration"),
        ({"watermark": "soon"}, "cannot use the watermark"),
        ({"by": "user"}, "cannot find user: the values are not decoded"),
        ({"page": "page"}, "cannot find page: the values are not decoded"),
        ({"shown": 0}, "cannot show the sessions"),
    ],
)
def test_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SessionsOptions(source=SOURCE, checkpoint="c", **options)


def test_keys_of_records_need_no_decoding() -> None:
    assert SessionsOptions(source=SOURCE, checkpoint="c").by == "key"
    values = ValueFormat(name="json", schema="user string")
    assert SessionsOptions(source=SOURCE, checkpoint="c", values=values, by="user").by == "user"
