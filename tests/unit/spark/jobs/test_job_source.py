"""plog/spark/jobs/job_source.py: the options of the source."""

from __future__ import annotations

from typing import Any

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.job_source import JobSource, TimeRange, range_options


def test_options_of_the_source_contain_the_settings_of_the_client() -> None:
    source = JobSource(
        bootstrap_servers="b:1",
        topics=("a", "b"),
        client={"client.id": "c", "bootstrap.servers": "other:1"},
        max_offsets_per_trigger=5,
    )
    assert source.options() == {
        "kafka.client.id": "c",
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "a,b",
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "false",
        "maxOffsetsPerTrigger": "5",
    }
    source = JobSource(bootstrap_servers="b:1", pattern="a.*")
    assert source.options(include_headers=True)["subscribePattern"] == "a.*"


def test_topics_and_a_pattern_exclude_each_other() -> None:
    for topics, pattern in (((), None), (("a",), "b")):
        with pytest.raises(ConfigError, match="set either topics or a pattern"):
            JobSource(bootstrap_servers="b:1", topics=topics, pattern=pattern)


def test_range_starts_at_its_time_even_if_a_partition_has_only_older_records() -> None:
    source = JobSource(bootstrap_servers="b:1", topics=("a",), max_offsets_per_trigger=5)
    options = range_options(source, TimeRange(from_ms=7, to_ms=9), include_headers=False)
    assert options["startingTimestamp"] == "7"
    assert options["startingOffsetsByTimestampStrategy"] == "latest"
    # An earlier end of the offsets could exclude records of the range.
    assert "endingTimestamp" not in options
    assert "maxOffsetsPerTrigger" not in options
    options = range_options(source, TimeRange(to_ms=9), include_headers=False)
    assert options["startingOffsets"] == "earliest"


def test_range_needs_its_start_before_its_end() -> None:
    assert not TimeRange().is_limited
    with pytest.raises(ConfigError, match="its end is not after its start"):
        TimeRange(from_ms=5, to_ms=5)


@pytest.mark.parametrize(
    ("chosen", "problems"),
    [
        ({"topics": ("a", "b")}, 1),
        ({"topics": ("b",)}, 0),
        ({"pattern": "^a"}, 1),
        ({"pattern": "b|c"}, 0),
    ],
)
def test_job_must_not_read_the_topics_that_it_writes(chosen: Any, problems: int) -> None:
    source = JobSource(bootstrap_servers="b:1", **chosen)
    found = source.target_problems("a", None, "other")
    assert len(found) == problems
    assert all("cannot write to a: the job also reads" in problem for problem in found)
