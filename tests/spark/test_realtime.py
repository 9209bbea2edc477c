"""The job `realtime`: complete windows are counted once, and their most frequent names shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from plog.records.record import Record
from plog.spark.jobs.realtime.job import run_realtime
from plog.spark.jobs.realtime.realtime_options import RealtimeOptions
from plog.spark.jobs.value_format import ValueFormat
from tests.spark.cluster import Cluster
from tests.spark.job_site import NOON_MS, JobSite


@pytest.fixture
def site(cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path) -> JobSite:
    return JobSite.created(cluster, new_topic, tmp_path)


def test_windows_are_counted_when_the_watermark_has_passed(
    site: JobSite, new_topic: Callable[[], str]
) -> None:
    output, dead = new_topic(), new_topic()
    for topic in (output, dead):
        site.cluster.create(topic)
    options = RealtimeOptions(
        source=site.source,
        checkpoint=str(site.folder / "checkpoint"),
        values=ValueFormat(name="json", schema="page string"),
        by="page",
        top=2,
        output_topic=output,
        dead_letter_topic=dead,
        trigger=site.options.trigger,
    )
    pages = [b'{"page": "b"}', b'{"page": "a"}', b'{"page": "c"}', b'{"page": "b"}']
    site.add(*pages, b"{", None, b"{}")
    run_realtime(site.cluster.spark, options, report=site.lines.append)
    assert site.cluster.rows("plog", subscribe=output) == []
    # An hour later, the window is complete; a record of it that arrives then is too late.
    site.add(b'{"page": "z"}', at_ms=NOON_MS + 3_600_000)
    run_realtime(site.cluster.spark, options, report=site.lines.append)
    site.add(*pages)
    run_realtime(site.cluster.spark, options, report=site.lines.append)
    found = [(row[0], json.loads(row[1])) for row in site.cluster.rows("plog", subscribe=output)]
    window = {"start_ms": NOON_MS, "end_ms": NOON_MS + 60_000, "total": 4}
    assert sorted(found) == [
        (b"%d/1" % NOON_MS, {**window, "rank": 1, "name": "b", "count": 2}),
        (b"%d/2" % NOON_MS, {**window, "rank": 2, "name": "a", "count": 1}),
    ]
    text = "\n".join(site.lines)
    assert "2026-01-01 12:00:00 to 2026-01-01 12:01:00: 4 records\n   1. b 2\n   2. a 1" in text
    assert [row[1] for row in site.cluster.rows("plog", subscribe=dead)] == [b"{"]


def test_records_are_counted_by_a_column_without_decoding(site: JobSite) -> None:
    options = RealtimeOptions(
        source=site.source,
        checkpoint=str(site.folder / "checkpoint"),
        window="10 seconds",
        watermark="1 second",
        trigger=site.options.trigger,
    )
    site.add(b"a", b"b")
    # Keys that are not text stay different.
    keys = [b"\xff", b"\xfe", b"\xff", b"\xff", None]
    records = [Record(timestamp=NOON_MS, key=key, value=None) for key in keys]
    site.cluster.produce(site.topic, 1, records)
    site.add(b"c", at_ms=NOON_MS + 60_000)
    run_realtime(site.cluster.spark, replace(options, by="key"), report=site.lines.append)
    assert site.lines[-3:] == ["   1. ff 3", "   2. k 2", "   3. fe 1"]
