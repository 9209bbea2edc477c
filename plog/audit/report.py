"""Audit reports: the records of the topic ``_plog_audit``.

Each report contains increments: what a producer has counted since its previous report. The reports
of a producer instance are numbered from 1 without gaps, so that an auditor recognizes a repeated
report and notices a missing one. The instance ID is new for each producer that an application
creates; the name of the producer can stay the same.

The key of a report is its instance ID. All reports of an instance are therefore in one partition,
in the order of their numbers.

The value is a JSON object:

    version     1
    producer    the name of the producer, as in the record header
    instance    the instance ID: 32 hexadecimal digits
    number      the number of the report
    since_ms    when the previous report was created, or when the producer started counting
    until_ms    when this report was created
    final       true in the last report of an instance, which has sent all of its records
    counts      acknowledged records: an array of objects, described below
    in_doubt    records whose outcome the producer does not know, in the same form

    topic       the name of the topic
    window_ms   the start of a time window of 60 s, in ms since 1970
    records     the number of records
    bytes       the total size of their values
    crc32_sum   the sum of the CRC-32 of their values modulo 2^64, as a string of decimal digits
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plog.audit.counts import CHECKSUM_MODULUS, WINDOW_MS, AuditCounts, AuditTotals, AuditWindow
from plog.errors import PlogError

AUDIT_TOPIC = "_plog_audit"
"""The topic of the reports."""
AUDIT_TOPIC_CONFIGS: Mapping[str, str] = {
    # Compaction would keep only the last increment of each instance.
    "cleanup.policy": "delete",
    # Twice the default retention of a topic, so that its oldest records can still be audited.
    "retention.ms": str(14 * 24 * 60 * 60 * 1000),
}
"""The configs with which producers create the topic."""
REPORT_VERSION = 1

# One spelling only, because the instance ID is also the key of the report.
_INSTANCE = re.compile(r"[0-9a-f]{32}")
# 2^64 has 20 digits. int() alone would also accept signs, spaces and underscores.
_DIGITS = re.compile(r"[0-9]{1,20}", re.ASCII)
# Timestamps in Kafka have 64 bits, so no time is larger.
_LAST_INTEGER = (1 << 63) - 1


class InvalidAuditReport(PlogError):
    """A record of the topic ``_plog_audit`` is not a valid report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """One report of one producer instance."""

    producer: str
    instance: str
    number: int
    """1 for the first report of the instance."""
    since_ms: int
    until_ms: int
    is_final: bool = False
    """Whether the instance was closed after it had reported all of its records."""
    counts: AuditCounts = field(default_factory=AuditCounts)
    """Acknowledged records, in windows of this producer."""
    in_doubt: AuditCounts = field(default_factory=AuditCounts)
    """Records that may or may not be in the log."""

    @property
    def key(self) -> bytes:
        """The key of the report's record."""
        return self.instance.encode()


def encode_report(report: AuditReport) -> bytes:
    """Return the value of the report's record.

    >>> report = AuditReport(
    ...     producer="web-1", instance="0" * 32, number=1, since_ms=5, until_ms=6
    ... )
    >>> parse_report(encode_report(report)).producer
    'web-1'
    """
    document = {
        "version": REPORT_VERSION,
        "producer": report.producer,
        "instance": report.instance,
        "number": report.number,
        "since_ms": report.since_ms,
        "until_ms": report.until_ms,
        "final": report.is_final,
        "counts": _entries(report.counts),
        "in_doubt": _entries(report.in_doubt),
    }
    # A producer may send a report every 10 seconds, so the text is compact.
    return json.dumps(document, separators=(",", ":")).encode()


def _entries(counts: AuditCounts) -> list[dict[str, object]]:
    return [
        {
            "topic": window.topic,
            "window_ms": window.window_ms,
            "records": totals.records,
            "bytes": totals.value_bytes,
            # A string, because JavaScript and jq read large JSON numbers inexactly.
            "crc32_sum": str(totals.crc32_sum),
        }
        for window, totals in counts.items()
    ]


def parse_report(value: bytes | None) -> AuditReport:
    """Return the report in a record's value. Raises InvalidAuditReport.

    Fields that this version does not know are ignored, so that later versions can add some.
    """
    if value is None:
        raise _invalid("its value is null")
    try:
        document: object = json.loads(value)
    # A number with thousands of digits is a ValueError, too; deep nesting is a RecursionError.
    except (ValueError, RecursionError) as error:
        raise _invalid(f"its value is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise _invalid("its value is not a JSON object")
    # The version comes first, because other fields may have another meaning in a later version.
    version = _integer(document, "version", first=1)
    if version != REPORT_VERSION:
        raise _invalid(f"version {version} is not supported; use a newer plog")
    producer = _text(document, "producer")
    instance = _text(document, "instance")
    if not _INSTANCE.fullmatch(instance):
        # Values in messages are cut, because any program can write a large one.
        raise _invalid(f"instance is {instance!r:.80}, not 32 lower-case hexadecimal digits")
    return AuditReport(
        producer=producer,
        instance=instance,
        number=_integer(document, "number", first=1),
        since_ms=_integer(document, "since_ms"),
        until_ms=_integer(document, "until_ms"),
        is_final=_flag(document, "final"),
        counts=_counts(document, "counts", producer),
        in_doubt=_counts(document, "in_doubt", producer),
    )


def _invalid(why: str) -> InvalidAuditReport:
    return InvalidAuditReport(f"invalid audit report: {why}")


def _field(document: Mapping[str, Any], name: str) -> Any:
    try:
        return document[name]
    except KeyError:
        raise _invalid(f"{name} is missing") from None


def _text(document: Mapping[str, Any], name: str) -> str:
    value = _field(document, name)
    if not isinstance(value, str) or not value:
        raise _invalid(f"{name} is {value!r:.80}, not a non-empty string")
    return value


def _integer(document: Mapping[str, Any], name: str, first: int = 0) -> int:
    value = _field(document, name)
    # In Python, bool is a subclass of int.
    if type(value) is not int or not first <= value <= _LAST_INTEGER:
        raise _invalid(f"{name} is {value!r:.80}, not an integer from {first} to 2^63 - 1")
    return value


def _flag(document: Mapping[str, Any], name: str) -> bool:
    value = _field(document, name)
    if not isinstance(value, bool):
        raise _invalid(f"{name} is {value!r:.80}, not true or false")
    return value


def _checksum(document: Mapping[str, Any]) -> int:
    value = _field(document, "crc32_sum")
    if isinstance(value, str) and _DIGITS.fullmatch(value) and int(value) < CHECKSUM_MODULUS:
        return int(value)
    raise _invalid(f"crc32_sum is {value!r:.80}, not a string with an integer below 2^64")


def _counts(document: Mapping[str, Any], name: str, producer: str) -> AuditCounts:
    entries = _field(document, name)
    if not isinstance(entries, list):
        raise _invalid(f"{name} is not an array")
    counts = AuditCounts()
    for entry in entries:
        if not isinstance(entry, dict):
            raise _invalid(f"{name} contains {entry!r:.80}, not an object")
        window = AuditWindow(_text(entry, "topic"), _integer(entry, "window_ms"), producer)
        # No record is counted in such a window, so its reported records would all appear as lost.
        if window.window_ms % WINDOW_MS:
            raise _invalid(f"window_ms is {window.window_ms}, not a multiple of {WINDOW_MS}")
        # Otherwise, the totals of both entries would be added up.
        if counts[window]:
            raise _invalid(f"{name} contains {window.topic} at {window.window_ms} twice")
        totals = AuditTotals(
            # With 0 records, the check above would not notice another entry of the window.
            records=_integer(entry, "records", first=1),
            value_bytes=_integer(entry, "bytes"),
            crc32_sum=_checksum(entry),
        )
        counts.add_totals(window, totals)
    return counts
