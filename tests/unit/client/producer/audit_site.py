"""An audited producer on a simulated network, with its reports and the counts of its topic."""

from __future__ import annotations

from plog.audit import (
    AUDIT_TOPIC,
    AuditCounts,
    AuditFinding,
    AuditLedger,
    AuditReport,
    parse_report,
    producer_of,
)
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite

PRODUCER = "web-1"
AUDITED = {"plog_audit_enable": True, "plog_audit_producer": PRODUCER}
"""The settings of an audited producer."""


def reports_of(site: ProducerSite) -> list[AuditReport]:
    """Return all reports in the log, in order."""
    return [parse_report(record.value) for record in site.records(topic=AUDIT_TOPIC)]


def ledger_of(site: ProducerSite) -> AuditLedger:
    """Return a ledger with all reports in the log."""
    ledger = AuditLedger()
    for report in reports_of(site):
        ledger.add(report)
    return ledger


def actual_of(site: ProducerSite) -> AuditCounts:
    """Return the counts of the records in the log of TOPIC."""
    counts = AuditCounts()
    for record in site.records():
        counts.add(TOPIC, record.timestamp, record.value, producer_of(record.headers))
    return counts


def findings_of(site: ProducerSite) -> list[AuditFinding]:
    """Return the differences between the reports and the log."""
    ledger = ledger_of(site)
    assert ledger.missing_reports() == []
    assert ledger.conflicts == []
    return list(ledger.findings(actual_of(site)))


def reported(site: ProducerSite) -> list[tuple[int, int, int]]:
    """Return the number of acknowledged and of doubtful records in each report."""
    return [
        (
            report.number,
            sum(totals.records for _, totals in report.counts.items()),
            sum(totals.records for _, totals in report.in_doubt.items()),
        )
        for report in reports_of(site)
    ]
