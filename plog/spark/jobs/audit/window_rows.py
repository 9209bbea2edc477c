"""`WindowRow`: the totals of a window as Spark returns them, and their `AuditCounts`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from plog.audit.counts import (
    AUDIT_HEADER,
    CHECKSUM_MODULUS,
    AuditCounts,
    AuditTotals,
    AuditWindow,
    producer_of,
)


class WindowRow(NamedTuple):
    """The totals of the records with the same topic, window and value of the header."""

    topic: str
    window_ms: int
    producer: bytes | None
    """The value of the last header ``plog.audit``; None without it."""
    records: int
    value_bytes: int
    high_crc32_sum: int
    """The sum of the upper 16 bits of the checksums."""
    low_crc32_sum: int
    """The sum of the lower 16 bits."""


def counts_of(rows: Iterable[WindowRow]) -> AuditCounts:
    """Return the counts of all rows.

    >>> counts = counts_of([WindowRow("clicks", 0, b"web-1", 2, 7, 1, 3)])
    >>> list(counts.items())[0][1]
    AuditTotals(records=2, value_bytes=7, crc32_sum=65539)
    """
    counts = AuditCounts()
    for row in rows:
        value = None if row.producer is None else bytes(row.producer)
        # `producer_of` also replaces bytes that are not UTF-8, so that the name equals that in
        # reports.
        window = AuditWindow(row.topic, row.window_ms, producer_of([(AUDIT_HEADER, value)]))
        totals = AuditTotals(
            records=row.records,
            value_bytes=row.value_bytes,
            # The sums in reports wrap at 64 bits, but Python's integers do not.
            crc32_sum=((row.high_crc32_sum << 16) + row.low_crc32_sum) % CHECKSUM_MODULUS,
        )
        counts.add_totals(window, totals)
    return counts
