"""The job `search-index`: each record is found once, whatever interrupts the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plog.search.index_folder import shard_of, shard_path
from plog.search.index_search import search_index
from plog.spark.jobs.search_index.job import run_search_index
from plog.spark.jobs.search_index.search_index_options import SearchIndexOptions
from plog.spark.jobs.value_format import ValueFormat
from tests.spark.cluster import Cluster
from tests.spark.job_site import JobSite

SHARDS = 2


@dataclass
class IndexSite:
    """An index of one topic."""

    site: JobSite

    @property
    def folder(self) -> Path:
        return self.site.folder / "index"

    def run(self, report: Callable[[str], None] | None = None, **more: Any) -> None:
        options = SearchIndexOptions(
            source=self.site.source,
            index=self.folder,
            checkpoint=str(self.site.folder / "checkpoint"),
            shards=SHARDS,
            trigger=self.site.options.trigger,
            **more,
        )
        run_search_index(self.site.cluster.spark, options, report=report or self.site.lines.append)

    def found(self, query: str) -> list[tuple[int, int]]:
        """Return partition and offset of all matches."""
        matches = search_index(self.folder, query, limit=1000)
        assert {match.topic for match in matches} <= {self.site.topic}
        return sorted((match.partition, match.offset) for match in matches)


@pytest.fixture
def index(cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path) -> IndexSite:
    return IndexSite(JobSite.created(cluster, new_topic, tmp_path))


def test_records_are_found_once_after_faults_of_driver_and_task(
    index: IndexSite, new_topic: Callable[[], str]
) -> None:
    dead = new_topic()
    index.site.cluster.create(dead)
    index.site.add(*(b"word number%d" % number for number in range(40)))
    index.site.add(None, b"other word", b"\xff", partition=1)

    def kill(line: str) -> None:
        if "40 records" in line or "41 records" in line:
            raise RuntimeError("killed before Spark commits the batch")

    with pytest.raises(Exception, match="killed before Spark commits"):
        index.run(kill, dead_letter_topic=dead)
    expected = [*((0, offset) for offset in range(40)), (1, 1)]
    assert index.found("word") == expected
    index.run(dead_letter_topic=dead)
    assert index.found("word") == expected
    assert index.site.lines == ["batch 1: 41 records indexed, 1 record without text, 1 dead letter"]
    letters = [row[1] for row in index.site.cluster.rows("plog", subscribe=dead)]
    assert letters == [b"\xff"] * 2
    # In the next batch, only one of the tasks fails: its shard cannot be opened.
    index.site.add(*[b"word again"] * 12)
    broken = shard_path(index.folder, 1)
    broken.rename(broken.with_suffix(".moved"))
    broken.mkdir()
    with pytest.raises(Exception, match=r"shard-001\.sqlite: it cannot be opened"):
        index.run(dead_letter_topic=dead)
    broken.rmdir()
    broken.with_suffix(".moved").rename(broken)
    index.run(dead_letter_topic=dead)
    assert index.found("word") == sorted([*expected, *((0, offset) for offset in range(40, 52))])
    # Spark and Python choose the same shard.
    shard_path(index.folder, 1).unlink()
    in_first = [place for place in expected if shard_of(index.site.topic, *place, SHARDS) == 0]
    assert [place for place in index.found("word") if place in expected] == in_first


def test_fields_of_json_are_indexed_and_cannot_be_changed(index: IndexSite) -> None:
    values = ValueFormat(name="json", schema="rank string, body string, size int")
    index.site.add(b'{"rank": "high", "body": "low"}', b'{"body": "high"}', b'{"size": 1}', b"{")
    index.run(values=values)
    assert index.found("high") == [(0, 0), (0, 1)]
    assert index.found("value_rank:high") == [(0, 0)]
    assert index.site.lines[-1].endswith("2 records indexed, 1 record without text, 1 dead letter")
    with pytest.raises(Exception, match="cannot change the columns of the index"):
        index.run(values=values, texts=("body",))
