"""The job `recommend`: baskets are counted once, and the most similar items are published."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plog.spark.jobs.job_source import TimeRange
from plog.spark.jobs.recommend.job import run_recommend
from plog.spark.jobs.recommend.recommend_options import RecommendOptions, SimilarityOptions
from plog.spark.jobs.value_format import ValueFormat
from tests.spark.cluster import Cluster
from tests.spark.job_site import HOUR_MS, NOON_MS, JobSite
from tests.unit.spark.jobs.faulty_files import FaultyFiles


@pytest.fixture
def site(cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path) -> JobSite:
    return JobSite.created(cluster, new_topic, tmp_path)


class KilledAtResult(FaultyFiles):
    """Kills the driver after the new counts were stored, before readers see the result."""

    def move(self, path: Path, target: Path) -> None:
        if target.name == "similar":
            self.fail_at = 0
        super().move(path, target)


def options_of(site: JobSite, **changes: Any) -> RecommendOptions:
    made = RecommendOptions(
        source=site.source,
        output=site.output,
        checkpoint=str(site.folder / "checkpoint"),
        values=ValueFormat(name="json", schema="user string, page string"),
        by="user",
        item="page",
        watermark="1 minute",
        trigger=site.options.trigger,
    )
    return replace(made, **changes)


def add_clicks(site: JobSite, *clicks: str, hour: int = 0, partition: int = 0) -> None:
    """Add clicks; "ann a b" are those of one user."""
    pages = [(words.split()[0], page) for words in clicks for page in words.split()[1:]]
    values = [json.dumps({"user": user, "page": page}).encode() for user, page in pages]
    site.add(*values, at_ms=NOON_MS + hour * HOUR_MS, partition=partition)


def similar(site: JobSite, kind: str = "parquet") -> list[tuple[Any, ...]]:
    """Return the published rows, with scores of three digits."""
    rows = site.cluster.spark.read.format(kind).load(str(site.output / "similar"))
    rows = rows.orderBy("item", "rank").selectExpr("item", "other", "round(score, 3)", "count")
    return [tuple(row) for row in rows.collect()]


def test_counts_of_a_stream_grow_once_after_kills(
    site: JobSite, new_topic: Callable[[], str]
) -> None:
    output = new_topic()
    site.cluster.create(output)
    options = options_of(site, output_topic=output)

    def run(files: FaultyFiles | None = None) -> None:
        run_recommend(
            site.cluster.spark, options, report=site.lines.append, files=files or FaultyFiles()
        )

    add_clicks(site, "ann a b a", "bob a b c")
    site.add(b"{", None, b'{"user": "cat"}', partition=1)
    # The last click completes the windows of the first hour.
    add_clicks(site, "bob b c", hour=1, partition=1)
    add_clicks(site, "eve x", hour=2)
    with pytest.raises(Exception, match="before change 0"):
        run(KilledAtResult())
    assert not (site.output / "similar").exists()
    run()
    assert similar(site) == [
        ("a", "b", 1.0, 2),
        ("a", "c", 0.707, 1),
        ("b", "a", 1.0, 2),
        ("b", "c", 0.707, 1),
        ("c", "a", 0.707, 1),
        ("c", "b", 0.707, 1),
    ]
    add_clicks(site, "ann x y", "ann late late", hour=0)
    add_clicks(site, "dan x y", hour=3)
    add_clicks(site, "dan z", hour=5)
    run()
    assert similar(site) == [
        ("a", "b", 0.816, 2),
        ("a", "c", 0.5, 1),
        ("b", "a", 0.816, 2),
        ("b", "c", 0.816, 2),
        ("c", "b", 0.816, 2),
        ("c", "a", 0.5, 1),
        ("x", "y", 0.707, 1),
        ("y", "x", 0.707, 1),
    ]
    assert "ignored at least 1 late record" in site.lines
    rows = [(row[0], json.loads(row[1])) for row in site.cluster.rows("plog", subscribe=output)]
    found = dict(rows)
    assert [one["item"] for one in found[b"b"]["similar"]] == ["a", "c"]
    assert found[b"y"]["similar"] == [{"item": "x", "score": pytest.approx(0.5**0.5), "count": 1}]
    # Each batch writes only the items of its baskets, at least once: the killed one had a, b and c.
    assert b"".join(sorted(key for key, _ in rows)) == b"aabbbcccxy"


def test_range_is_counted_without_a_checkpoint_and_large_baskets_are_sampled(
    site: JobSite, new_topic: Callable[[], str]
) -> None:
    dead = new_topic()
    site.cluster.create(dead)
    add_clicks(site, "ann old pages", hour=-1)
    add_clicks(site, "bot " + " ".join(f"p{number}" for number in range(30)), "ann a b", "bob a")
    add_clicks(site, "ann new pages", hour=1)
    site.add(b"{")
    options = options_of(
        site,
        checkpoint=None,
        times=TimeRange(from_ms=NOON_MS, to_ms=NOON_MS + HOUR_MS),
        max_items=4,
        similarity=SimilarityOptions(score="jaccard", top=2),
        output_format="json",
        dead_letter_topic=dead,
    )
    run_recommend(site.cluster.spark, options, report=site.lines.append)
    rows = similar(site, "json")
    assert [row for row in rows if row[0] in "ab"] == [("a", "b", 0.5, 1), ("b", "a", 0.5, 1)]
    # Four of the bot's pages, with two others each.
    assert len({row[0] for row in rows}) == 6
    assert len(rows) == 2 + 4 * 2
    assert site.lines[-2:] == [
        "3 baskets in the range",
        "published the similar items of 6 items, 7 pairs",
    ]
    assert [row[1] for row in site.cluster.rows("plog", subscribe=dead)] == [b"{"]
    # A range without records has an empty result, which replaces the other one.
    empty = replace(options, times=TimeRange(from_ms=1, to_ms=2), output_format="parquet")
    run_recommend(site.cluster.spark, empty, report=site.lines.append)
    assert similar(site) == []
