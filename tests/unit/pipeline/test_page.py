"""The page of the pipeline: its verdict, checks and findings."""

from __future__ import annotations

from collections import Counter

from examples.pipeline.audits import Audit
from examples.pipeline.checks import Check
from examples.pipeline.page import page
from examples.pipeline.pipeline import Outcome
from examples.pipeline.spark_jobs import TopPages

FINDING = {
    "kind": "different",
    "topic": "clicks",
    "window_ms": 60_000,
    "producer": "web-1",
    "reported": {"records": 5, "bytes": 50, "crc32_sum": "7"},
    "found": {"records": 5, "bytes": 51, "crc32_sum": "8"},
}


def outcome(found: int) -> Outcome:
    counts = {"clicks": Counter({0: 1, 60_000: 5})}
    return Outcome(
        sent=counts,
        found=counts,
        top=[TopPages(start_ms=60_000, total=5, pages=[("/<a>", 3)])],
        audits=[
            Audit(command="plog spark audit", exit_code=0, data={}),
            Audit(command="plog audit", exit_code=1, data={"findings": [FINDING]}),
        ],
        checks=[Check(name="rows", expected=5, found=found)],
    )


def test_page_shows_checks_findings_and_pages() -> None:
    text = page(outcome(5))
    assert "<h1>Every record is accounted for</h1>" in text
    assert "<td>plog spark audit</td><td>nothing</td>" in text
    assert "<td>different</td><td>clicks 00:01 web-1</td><td>5 / 5</td><td>50 / 51</td>" in text
    assert "<td>/&lt;a&gt; (3)</td>" in text
    assert text.count("<svg") == 2


def test_failed_check_is_the_verdict() -> None:
    made = outcome(4)
    assert not made.is_complete
    text = page(made)
    assert "<h1>Some checks failed</h1>" in text
    assert '<td class="bad">not ok</td><td>rows</td><td>5</td><td>4</td>' in text


def test_pipeline_without_checks_is_not_complete() -> None:
    assert not Outcome(sent={}).is_complete
