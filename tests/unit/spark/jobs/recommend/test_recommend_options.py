"""plog/spark/jobs/recommend/recommend_options.py: wrong options are found before Spark starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.job_source import JobSource, TimeRange
from plog.spark.jobs.recommend.recommend_options import RecommendOptions, SimilarityOptions
from plog.spark.jobs.value_format import ValueFormat

SOURCE = JobSource(bootstrap_servers="b:1", topics=("t",))


def made(**options: Any) -> RecommendOptions:
    given = {"item": "topic", "checkpoint": "c", **options}
    return RecommendOptions(source=SOURCE, output=Path("o"), **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": "1h"}, "cannot use the window '1h': write a duration"),
        ({"item": "page"}, "cannot find page: the values are not decoded"),
        ({"output_format": "jsn"}, "cannot use the output format 'jsn': did you mean json?"),
        ({"checkpoint": None}, "set either a checkpoint, for the stream, or the start or end"),
        ({"times": TimeRange(from_ms=0)}, "set either a checkpoint, for the stream, or the start"),
    ],
)
def test_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        made(**options)
    assert message in str(raised.value)


@pytest.mark.parametrize("limit", [{"starting_offsets": "latest"}, {"max_offsets_per_trigger": 5}])
def test_offsets_of_a_range_cannot_be_limited(limit: dict[str, Any]) -> None:
    source = JobSource(bootstrap_servers="b:1", topics=("t",), **limit)
    options: dict[str, Any] = {"source": source, "output": Path("o"), "item": "topic"}
    assert RecommendOptions(**options, checkpoint="c").source == source
    with pytest.raises(ConfigError, match="cannot limit the offsets of a range"):
        RecommendOptions(**options, times=TimeRange(from_ms=0))


def test_unknown_score_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot use the score 'cosinus': did you mean cosine"):
        SimilarityOptions(score="cosinus")


def test_stream_has_a_checkpoint_and_a_range_has_times() -> None:
    assert made().checkpoint == "c"
    values = ValueFormat(name="json", schema="page string")
    given = made(checkpoint=None, times=TimeRange(to_ms=5), values=values, item="page")
    assert given.times.is_limited
