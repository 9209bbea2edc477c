"""plog/cli/spark/jobs/job_table.py: the command lines of jobs become their options."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from plog.cli.parser import examples_of
from plog.cli.spark.jobs.job_table import JOBS, job_options, job_parser
from plog.spark.jobs.job_source import TimeRange
from plog.spark.jobs.recommend.recommend_options import SimilarityOptions


def options(name: str, *words: str) -> Any:
    """Return the options of a job that reads one topic."""
    given = ["--bootstrap-server", "b:1", "--topic", "t", *words]
    return job_options(job_parser(name), JOBS[name], given)


@pytest.mark.parametrize("name", JOBS)
def test_examples_of_a_job_are_valid(name: str) -> None:
    parser = job_parser(name)
    examples = examples_of(parser)
    assert examples
    for example in examples:
        words = shlex.split(example)
        assert words[:3] == ["plog", "spark", name]
        assert job_options(parser, JOBS[name], words[3:])


def test_sessions_of_keys_end_after_half_an_hour_by_default() -> None:
    made = options("sessions", "--checkpoint", "c")
    assert (made.by, made.time, made.gap, made.page, made.shown) == (
        "key",
        "timestamp",
        "30 minutes",
        None,
        20,
    )


def test_search_index_reads_texts_by_default() -> None:
    made = options("search-index", "--checkpoint", "c", "--output", "file:///i", "--text", "a,b")
    assert (made.values.name, made.texts, made.shards, made.tokenizer) == (
        "text",
        ("a", "b"),
        None,
        None,
    )
    assert made.index == Path("/i")


def test_recommend_reads_a_stream_or_a_range() -> None:
    words = ["--item", "topic", "--output", "o"]
    stream = options("recommend", *words, "--checkpoint", "c", "--top", "3", "--score", "jaccard")
    assert stream.checkpoint == "c"
    assert stream.similarity == SimilarityOptions(score="jaccard", top=3)
    assert stream.trigger.interval_s == 600
    limited = options("recommend", *words, "--from", "1970-01-01T00:00:05", "--to", "1970-01-02")
    assert limited.times == TimeRange(from_ms=5000, to_ms=86_400_000)
    assert limited.checkpoint is None
