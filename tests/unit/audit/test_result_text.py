"""Results as text and as JSON."""

from __future__ import annotations

import json

from plog.audit import AuditFinding, AuditTotals, AuditWindow, FindingKind, MissingReports
from plog.audit.result import AuditResult, SkippedWindows, TopicSummary, UnreportedRecords
from plog.audit.result_text import result_data, result_lines

WINDOW = AuditWindow("clicks", 60_000, "web-1")
DIFFERENT = AuditFinding(
    kind=FindingKind.DIFFERENT,
    window=WINDOW,
    expected=AuditTotals.of([b"a", b"b"]),
    actual=AuditTotals.of([b"a", b"a"]),
)


def unreported(minute: int, producer: str | None) -> UnreportedRecords:
    window = AuditWindow("clicks", minute * 60_000, producer)
    finding = AuditFinding(
        kind=FindingKind.UNREPORTED, window=window, actual=AuditTotals.of([b"a"])
    )
    return UnreportedRecords(finding=finding, reason="it was killed")


RESULT = AuditResult(
    topics={"clicks": TopicSummary(windows=4, reported=2, found=5)},
    findings=(DIFFERENT,),
    unreported=(unreported(1, None), unreported(2, "web-2"), unreported(3, "web-2")),
    missing_reports=(
        MissingReports(
            producer="web-1", instance="1" * 32, first=2, last=2, since_ms=None, until_ms=60_000
        ),
    ),
    invalid_reports=("_plog_audit-0 at 7: no",),
    repeated_reports=3,
    pending=4,
    skipped=(SkippedWindows(topic="clicks", before_ms=60_000, windows=1, reported=9, found=8),),
    notes=("a note",),
)


def test_lines_name_findings_limits_and_totals() -> None:
    assert list(result_lines(RESULT)) == [
        "clicks 1970-01-01T00:01:00Z web-1: 2 records as reported, but their values differ"
        " (reported 2 bytes with the CRC-32 sum 5812694588, found 2 bytes with the CRC-32 sum"
        " 7808711814: as many records are lost as are repeated, or values have changed)",
        "unreported: clicks (no producer): 1 records in 1 windows from 1970-01-01T00:01:00Z to"
        " 1970-01-01T00:01:00Z: it was killed",
        "unreported: clicks web-2: 2 records in 2 windows from 1970-01-01T00:02:00Z to"
        " 1970-01-01T00:03:00Z: it was killed",
        f"missing: report 2 of instance {'1' * 32} of producer web-1, with counts from the start"
        " of the producer to 1970-01-01T00:01:00Z",
        "invalid: _plog_audit-0 at 7: no",
        "not compared: clicks: 1 windows before 1970-01-01T00:01:00Z (reported 9, found 8),"
        " because retention has deleted records or reports",
        "note: a note",
        "note: _plog_audit contains 3 reports twice",
        "note: 4 records in recent windows are not reported yet",
        "clicks: reported 2, found 5 records in 4 windows",
        "found 6 problems",
    ]


def test_last_line_states_that_nothing_was_found_or_compared() -> None:
    summary = {"clicks": TopicSummary(windows=1, reported=1, found=1)}
    *_, last = result_lines(AuditResult(topics=summary))
    assert last == "all records are accounted for"
    *_, last = result_lines(AuditResult(topics={"clicks": TopicSummary()}))
    assert last == "there were no records to compare"


def test_json_contains_both_sides_of_a_finding() -> None:
    data = json.loads(json.dumps(result_data(RESULT)))
    assert data["accounted_for"] is False
    [finding] = data["findings"]
    assert finding["kind"] == "different"
    assert (finding["topic"], finding["window_ms"], finding["producer"]) == tuple(WINDOW)
    assert finding["reported"] == {"records": 2, "bytes": 2, "crc32_sum": "5812694588"}
    assert finding["found"]["crc32_sum"] == "7808711814"
    assert [one["reason"] for one in data["unreported"]] == ["it was killed"] * 3
    assert data["missing_reports"][0]["first"] == 2
    assert data["topics"]["clicks"] == {"windows": 4, "reported": 2, "found": 5}
    assert data["pending_records"] == 4
