"""The audit of topics: what producers have counted, compared with what topics contain.

A producer with ``plog.audit.enable=true`` counts its acknowledged records per topic and time window
(counts.py). It reports the counts to the topic ``_plog_audit`` (report.py). An auditor reads the
reports and counts the records of the topics. `AuditLedger` compares both (ledger.py, findings.py).

This package is pure: it does not read topics or send reports. Producers send their reports with
`plog.client.producer.audit_reporter`.

Source: Kafka paper (NetDB 2011), section 4, on auditing.
"""

from plog.audit.counts import (
    AUDIT_HEADER,
    WINDOW_MS,
    AuditCounts,
    AuditTotals,
    AuditWindow,
    producer_of,
    window_start_ms,
)
from plog.audit.findings import AuditFinding, FindingKind
from plog.audit.ledger import AuditLedger, MissingReports
from plog.audit.report import (
    AUDIT_TOPIC,
    AUDIT_TOPIC_CONFIGS,
    AuditReport,
    InvalidAuditReport,
    encode_report,
    parse_report,
)

__all__ = [
    "AUDIT_HEADER",
    "AUDIT_TOPIC",
    "AUDIT_TOPIC_CONFIGS",
    "WINDOW_MS",
    "AuditCounts",
    "AuditFinding",
    "AuditLedger",
    "AuditReport",
    "AuditTotals",
    "AuditWindow",
    "FindingKind",
    "InvalidAuditReport",
    "MissingReports",
    "encode_report",
    "parse_report",
    "producer_of",
    "window_start_ms",
]
