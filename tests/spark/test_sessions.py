"""The job `sessions`: a row for each session that has ended, and none for late records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from plog.spark.jobs.sessions.job import run_sessions
from plog.spark.jobs.sessions.sessions_options import SessionsOptions
from plog.spark.jobs.value_format import ValueFormat
from tests.spark.cluster import Cluster
from tests.spark.job_site import HOUR_MS, NOON_MS, JobSite


@pytest.fixture
def site(cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path) -> JobSite:
    return JobSite.created(cluster, new_topic, tmp_path)


def click(user: str, page: str | None) -> bytes:
    return json.dumps({"user": user, "page": page}).encode()


def session(
    key: str, start_ms: int, end_ms: int, count: int, *pages: str
) -> tuple[bytes, dict[str, object]]:
    """Return the key and the value of a session's record."""
    first, last = pages
    times: dict[str, object] = {"start_ms": start_ms, "end_ms": end_ms, "count": count}
    return b"%s/%d" % (key.encode(), start_ms), {"key": key, **times, "first": first, "last": last}


def test_session_is_written_once_when_its_gap_has_passed(
    site: JobSite, new_topic: Callable[[], str]
) -> None:
    output = new_topic()
    site.cluster.create(output)
    options = SessionsOptions(
        source=site.source,
        checkpoint=str(site.folder / "checkpoint"),
        values=ValueFormat(name="json", schema="user string, page string"),
        by="user",
        page="page",
        gap="10 minutes",
        watermark="1 minute",
        output_topic=output,
        trigger=site.options.trigger,
    )

    def run() -> None:
        run_sessions(site.cluster.spark, options, report=site.lines.append)

    site.add(click("a", "/in"), click("b", "/in"), b"{", None, b'{"page": "/"}')
    # Within the gap of the first record, in another partition; then after it.
    site.add(click("a", None), click("a", "/out"), partition=1, at_ms=NOON_MS + 500_000)
    site.add(click("a", "/again"), partition=1, at_ms=NOON_MS + HOUR_MS)
    run()
    # The session with /again goes on; these records are late for the others.
    site.add(click("a", "/late"), click("b", "/late"), click("a", "/end"), at_ms=NOON_MS)
    site.add(click("a", "/end"), at_ms=NOON_MS + HOUR_MS + 1)
    site.add(click("c", "/"), at_ms=NOON_MS + 3 * HOUR_MS)
    run()
    rows = site.cluster.rows("plog", subscribe=output)
    again = NOON_MS + HOUR_MS
    assert sorted((row[0], json.loads(row[1])) for row in rows) == [
        session("a", NOON_MS, NOON_MS + 500_001, 3, "/in", "/out"),
        session("a", again, again + 1, 2, "/again", "/end"),
        session("b", NOON_MS + 1, NOON_MS + 1, 1, "/in", "/in"),
    ]
    assert "ignored at least 3 late records" in site.lines
    assert "a: 2026-01-01 12:00:00 to 2026-01-01 12:08:20.001, 3 records, /in to /out" in site.lines
