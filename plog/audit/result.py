"""`AuditResult`: everything that an audit has found, and `compare`, which finds it.

result_text.py prints results. `plog.client.audit` reads the reports and the bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from plog.audit.bounds import AuditBounds
from plog.audit.counts import AUDIT_HEADER, AuditCounts, AuditWindow
from plog.audit.findings import AuditFinding, FindingKind
from plog.audit.ledger import AuditLedger, MissingReports


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """The compared windows of one topic, and the numbers of records in them."""

    windows: int = 0
    reported: int = 0
    """The acknowledged records that producers have reported."""
    found: int = 0
    """The records that the topic contains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreportedRecords:
    """Records of a topic that no producer has reported, and why not."""

    finding: AuditFinding
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedWindows:
    """Windows of a topic that were not compared, because retention has deleted a part of them."""

    topic: str
    before_ms: int
    """The windows start before this time."""
    windows: int
    reported: int
    found: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The outcome of an audit."""

    topics: Mapping[str, TopicSummary] = field(default_factory=dict)
    findings: tuple[AuditFinding, ...] = ()
    """Windows with lost, repeated or different records."""
    unreported: tuple[UnreportedRecords, ...] = ()
    missing_reports: tuple[MissingReports, ...] = ()
    invalid_reports: tuple[str, ...] = ()
    """Records of ``_plog_audit`` that are not reports or contradict another one; with reasons."""
    repeated_reports: int = 0
    """Reports that were received again and ignored; they are harmless."""
    pending: int = 0
    """Records in recent windows that no producer has reported yet."""
    skipped: tuple[SkippedWindows, ...] = ()
    notes: tuple[str, ...] = ()
    """Other limits of this audit, such as topics that do not exist any more."""

    @property
    def problems(self) -> int:
        """The number of things that are not accounted for."""
        return (
            # Pending records and skipped windows are limits of the audit, so they are not problems.
            len(self.findings)
            + len(self.unreported)
            + len(self.missing_reports)
            + len(self.invalid_reports)
        )


def compare(
    ledger: AuditLedger,
    actual: AuditCounts,
    topics: Collection[str],
    bounds: AuditBounds,
    *,
    audited_only: bool = False,
    invalid_reports: Iterable[str] = (),
    notes: Iterable[str] = (),
) -> AuditResult:
    """Compare the records of topics with the reports.

    With `audited_only`, records without the header of a producer are ignored.
    """
    # A topic without windows is a part of the result, too. The summary is immutable, so all topics
    # can share one.
    summaries = dict.fromkeys(topics, TopicSummary())
    skipped: dict[str, SkippedWindows] = {}
    findings, unreported, pending = [], [], 0
    for window in _windows(ledger, actual, topics, bounds, audited_only):
        found = actual[window]
        # Otherwise, records that retention has deleted would appear as lost.
        if not bounds.is_retained(window):
            skipped[window.topic] = _skipped(skipped, ledger, window, found.records, bounds)
            continue
        summaries[window.topic] = _summary(
            summaries[window.topic], ledger.expected(window).records, found.records
        )
        finding = ledger.finding(window, found)
        if finding is None:
            continue
        # Missing records were reported before the topics were read, so they are lost in any case.
        if bounds.is_recent(window) and finding.kind in _EXCESS:
            pending += finding.records
        elif finding.kind is FindingKind.UNREPORTED:
            unreported.append(UnreportedRecords(finding=finding, reason=_reason(ledger, window)))
        else:
            findings.append(finding)
    return AuditResult(
        topics=summaries,
        findings=tuple(findings),
        unreported=tuple(unreported),
        missing_reports=tuple(_missing_reports(ledger, bounds)),
        invalid_reports=(
            *invalid_reports,
            *(
                f"report {one.number} of instance {one.instance} of producer {one.producer}"
                " contradicts another report with this number"
                for one in ledger.conflicts
            ),
        ),
        repeated_reports=ledger.repeated_reports,
        pending=pending,
        skipped=tuple(skipped.values()),
        notes=tuple(notes),
    )


_EXCESS = (FindingKind.UNREPORTED, FindingKind.REPEATED)


def _windows(
    ledger: AuditLedger,
    actual: AuditCounts,
    topics: Collection[str],
    bounds: AuditBounds,
    audited_only: bool,
) -> list[AuditWindow]:
    """Return the windows of an audit in the order of a report."""
    found = {
        window
        for window in ledger.windows().union(window for window, _ in actual.items())
        if window.topic in topics
        and bounds.contains(window)
        and not (audited_only and window.producer is None)
    }
    # None cannot be compared with a name.
    return sorted(found, key=lambda one: (one.topic, one.window_ms, one.producer or ""))


def _summary(summary: TopicSummary, reported: int, found: int) -> TopicSummary:
    return TopicSummary(
        windows=summary.windows + 1,
        reported=summary.reported + reported,
        found=summary.found + found,
    )


def _skipped(
    skipped: Mapping[str, SkippedWindows],
    ledger: AuditLedger,
    window: AuditWindow,
    found: int,
    bounds: AuditBounds,
) -> SkippedWindows:
    known = skipped.get(window.topic)
    return SkippedWindows(
        topic=window.topic,
        before_ms=bounds.first_retained_ms(window.topic),
        windows=(known.windows if known else 0) + 1,
        reported=(known.reported if known else 0) + ledger.expected(window).records,
        found=(known.found if known else 0) + found,
    )


def _reason(ledger: AuditLedger, window: AuditWindow) -> str:
    """Return why the records of a window are not reported."""
    # The most certain reason comes first.
    if window.producer is None:
        return f"they have no header {AUDIT_HEADER}: their producer is not audited"
    if window.producer not in ledger.producers:
        return "this producer has never reported: it was killed first, or its reports are lost"
    if ledger.has_gaps(window.producer):
        return "reports of this producer are missing"
    return "this producer was killed, or has not reported them yet"


def _missing_reports(ledger: AuditLedger, bounds: AuditBounds) -> Iterable[MissingReports]:
    """Yield the missing reports that may contain windows of the audit."""
    for gap in ledger.missing_reports():
        # Only the start of the range matters. A report after its end may contain earlier records.
        if bounds.since_ms is not None and gap.until_ms < bounds.since_ms:
            continue
        # Retention deletes the first reports first.
        if gap.since_ms is None and bounds.reports_retained_ms is not None:
            continue
        yield gap
