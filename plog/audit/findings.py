"""Findings of an audit: windows in which a topic does not contain what producers have reported."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from plog.audit.counts import NO_RECORDS, AuditTotals, AuditWindow


class FindingKind(Enum):
    """How the records of a window differ from the reports; the values appear in messages."""

    LOST = "lost"
    """The topic contains fewer records than producers have reported."""
    REPEATED = "repeated"
    """The topic contains more records, and all reports of the producer are known."""
    DIFFERENT = "different"
    """The number of records is right but the values differ: lost and repeated, or changed."""
    UNREPORTED = "unreported"
    """No producer has reported the records: the header is missing, the reports are missing, or the
    producer was killed or has not reported them yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """A window whose records differ from the reports.

    >>> finding = AuditFinding(
    ...     kind=FindingKind.LOST,
    ...     window=AuditWindow("clicks", 60_000, "web-1"),
    ...     expected=AuditTotals(records=5, value_bytes=50, crc32_sum=7),
    ...     actual=AuditTotals(records=3, value_bytes=30, crc32_sum=4),
    ... )
    >>> print(finding)
    clicks 1970-01-01T00:01:00Z web-1: 2 records lost (reported 5, found 3)
    """

    kind: FindingKind
    window: AuditWindow
    expected: AuditTotals = NO_RECORDS
    """The acknowledged records that producers have reported."""
    in_doubt: AuditTotals = NO_RECORDS
    """The reported records that may or may not be in the topic."""
    actual: AuditTotals = NO_RECORDS
    """The records that the topic contains."""

    @property
    def records(self) -> int:
        """How many records are lost, repeated or unreported; 0 for `FindingKind.DIFFERENT`.

        Lost and repeated records of the same window cancel out, except for one of each kind.
        """
        excess = self.actual.records - self.expected.records
        if self.kind is FindingKind.DIFFERENT:
            return 0
        # The records in doubt may all be in the topic, so only more than those are in excess.
        return -excess if excess < 0 else max(0, excess - self.in_doubt.records)

    def __str__(self) -> str:
        topic, window_ms, producer = self.window
        place = f"{topic} {time_text(window_ms)} {producer or '(no producer)'}"
        if self.kind is FindingKind.DIFFERENT:
            return (
                f"{place}: {self.actual.records} records as reported, but their values differ"
                f" (reported {_values(self.expected)}, found {_values(self.actual)}: as many"
                " records are lost as are repeated, or values have changed)"
            )
        found = f"reported {self.expected.records}, found {self.actual.records}"
        if self.in_doubt:
            found += f", in doubt {self.in_doubt.records}"
        return f"{place}: {self.records} records {self.kind.value} ({found})"


def _values(totals: AuditTotals) -> str:
    return f"{totals.value_bytes} bytes with the CRC-32 sum {totals.crc32_sum}"


def time_text(timestamp_ms: int) -> str:
    """Return a time in UTC as text.

    >>> time_text(60_000), time_text(1 << 60)
    ('1970-01-01T00:01:00Z', '1152921504606846976 ms')
    """
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # Records can have timestamps after the year 9999.
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
