"""Audit results as lines of text, and as data for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from plog.audit.findings import AuditFinding, time_text
from plog.audit.ledger import MissingReports
from plog.audit.report import AUDIT_TOPIC
from plog.audit.result import AuditResult, UnreportedRecords


def result_lines(result: AuditResult) -> Iterator[str]:
    """Yield the lines of a result: what was found, what was not compared, and the totals."""
    for finding in result.findings:
        yield str(finding)
    yield from _unreported_lines(result)
    for gap in result.missing_reports:
        yield f"missing: {gap}, {_time_of(gap)}"
    for reason in result.invalid_reports:
        yield f"invalid: {reason}"
    for skipped in result.skipped:
        yield (
            f"not compared: {skipped.topic}: {skipped.windows} windows before"
            f" {time_text(skipped.before_ms)} (reported {skipped.reported}, found"
            f" {skipped.found}), because retention has deleted records or reports"
        )
    for note in result.notes:
        yield f"note: {note}"
    if result.repeated_reports:
        yield f"note: {AUDIT_TOPIC} contains {result.repeated_reports} reports twice"
    if result.pending:
        yield f"note: {result.pending} records in recent windows are not reported yet"
    for topic, summary in result.topics.items():
        yield (
            f"{topic}: reported {summary.reported}, found {summary.found} records in"
            f" {summary.windows} windows"
        )
    # The verdict is last, where it is visible after a long output.
    yield _verdict(result)


def _verdict(result: AuditResult) -> str:
    if result.problems:
        return f"found {result.problems} problems"
    # An audit that compares nothing must not look like a success.
    if not any(summary.windows for summary in result.topics.values()):
        return "there were no records to compare"
    return "all records are accounted for"


def _unreported_lines(result: AuditResult) -> Iterator[str]:
    """Yield a line for each topic and producer with unreported records."""
    # A producer that is not audited has unreported records in each window, and a line for each of
    # them would hide the rest.
    groups: dict[tuple[str, str | None, str], list[UnreportedRecords]] = {}
    for one in result.unreported:
        window = one.finding.window
        groups.setdefault((window.topic, window.producer, one.reason), []).append(one)
    for (topic, producer, reason), found in groups.items():
        times = [one.finding.window.window_ms for one in found]
        yield (
            f"unreported: {topic} {producer or '(no producer)'}:"
            f" {sum(one.finding.records for one in found)} records in {len(found)} windows from"
            f" {time_text(min(times))} to {time_text(max(times))}: {reason}"
        )


def _time_of(gap: MissingReports) -> str:
    since = "the start of the producer" if gap.since_ms is None else time_text(gap.since_ms)
    return f"with counts from {since} to {time_text(gap.until_ms)}"


def result_data(result: AuditResult) -> dict[str, object]:
    """Return a result as data for JSON; CRC-32 sums are strings."""
    return {
        "accounted_for": not result.problems,
        "topics": {name: asdict(summary) for name, summary in result.topics.items()},
        "findings": [_finding_data(finding) for finding in result.findings],
        "unreported": [
            {**_finding_data(one.finding), "reason": one.reason} for one in result.unreported
        ],
        "missing_reports": [asdict(gap) for gap in result.missing_reports],
        "invalid_reports": list(result.invalid_reports),
        "repeated_reports": result.repeated_reports,
        "pending_records": result.pending,
        "skipped": [asdict(skipped) for skipped in result.skipped],
        "notes": list(result.notes),
    }


def _finding_data(finding: AuditFinding) -> dict[str, object]:
    topic, window_ms, producer = finding.window
    return {
        "kind": finding.kind.value,
        "topic": topic,
        "window_ms": window_ms,
        "producer": producer,
        "records": finding.records,
        **{
            name: {
                "records": totals.records,
                "bytes": totals.value_bytes,
                # A string, because JavaScript and jq read large JSON numbers inexactly.
                "crc32_sum": str(totals.crc32_sum),
            }
            for name, totals in (
                ("reported", finding.expected),
                ("in_doubt", finding.in_doubt),
                ("found", finding.actual),
            )
        },
    }
