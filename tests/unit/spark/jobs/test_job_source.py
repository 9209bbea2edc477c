"""plog/spark/jobs/job_source.py: the options of the source."""

from __future__ import annotations

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.job_source import JobSource


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
