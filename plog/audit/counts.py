"""Counts of records per topic, time window and producer.

Producers use `AuditCounts` for the records that brokers have acknowledged. Auditors use it for the
records that they read. Records are identified by a checksum, the sum of zlib's CRC-32 of their
values modulo 2^64. In Spark SQL, it is ``sum(crc32(value))``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple
from zlib import crc32

WINDOW_MS = 60_000
"""The length of a time window of record timestamps."""
AUDIT_HEADER = "plog.audit"
"""The name of the record header that contains the name of the producer, in UTF-8."""
# A sum of fewer than 2^32 checksums cannot wrap.
CHECKSUM_MODULUS = 1 << 64


class AuditWindow(NamedTuple):
    """The records of one topic and producer whose timestamps are in one time window."""

    topic: str
    window_ms: int
    """The start of the window, in ms since 1970; a multiple of `WINDOW_MS`."""
    producer: str | None
    """The name in the record header; None for records without the header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTotals:
    """The number, size and checksum of some records.

    >>> AuditTotals.of([b"a", None]) + AuditTotals.of([b"bc"])
    AuditTotals(records=3, value_bytes=3, crc32_sum=7170222459)
    """

    records: int = 0
    value_bytes: int = 0
    # A sum does not depend on the order of the records. It changes if one record is lost and
    # another one is repeated, which the number of records does not show.
    crc32_sum: int = 0
    """The sum of the CRC-32 of all values, modulo 2^64."""

    @classmethod
    def of(cls, values: Iterable[bytes | None]) -> AuditTotals:
        """Return the totals of records with these values; null counts as an empty value."""
        # A tombstone is a record, too, so a null value must count.
        filled = [value or b"" for value in values]
        return cls(
            records=len(filled),
            value_bytes=sum(map(len, filled)),
            crc32_sum=sum(map(crc32, filled)) % CHECKSUM_MODULUS,
        )

    def __add__(self, other: AuditTotals) -> AuditTotals:
        return AuditTotals(
            records=self.records + other.records,
            value_bytes=self.value_bytes + other.value_bytes,
            crc32_sum=(self.crc32_sum + other.crc32_sum) % CHECKSUM_MODULUS,
        )

    def __bool__(self) -> bool:
        return self.records > 0


NO_RECORDS = AuditTotals()


class AuditCounts:
    """Totals by `AuditWindow`; they grow with each record. Not thread-safe.

    >>> counts = AuditCounts()
    >>> counts.add("clicks", 61_000, b"a", "web-1")
    >>> counts.add("clicks", 119_999, None, "web-1")
    >>> for window, totals in counts.items():
    ...     print(window.topic, window.window_ms, window.producer, totals.records)
    clicks 60000 web-1 2
    """

    __slots__ = ("_totals",)

    def __init__(self) -> None:
        self._totals: dict[AuditWindow, AuditTotals] = {}

    def __len__(self) -> int:
        """Return the number of windows that have records."""
        return len(self._totals)

    def __getitem__(self, window: AuditWindow) -> AuditTotals:
        """Return the totals of a window; they are zero if the window has no records."""
        # A lookup must not add a window, as a defaultdict would.
        return self._totals.get(window, NO_RECORDS)

    def items(self) -> Iterator[tuple[AuditWindow, AuditTotals]]:
        """Yield each window that has records, with its totals."""
        yield from self._totals.items()

    def add(self, topic: str, timestamp_ms: int, value: bytes | None, producer: str | None) -> None:
        """Count one record."""
        window = AuditWindow(topic, window_start_ms(timestamp_ms), producer)
        self.add_totals(window, AuditTotals.of((value,)))

    def add_batch(
        self,
        topic: str,
        timestamps_ms: Sequence[int],
        values: Sequence[bytes | None],
        producer: str | None,
    ) -> None:
        """Count records that have one timestamp and one value each.

        This costs much less than a call of `add` per record if all records are in one window.
        """
        # A batch without records would add a window without records, and has no minimum.
        if not timestamps_ms:
            return
        first_ms = window_start_ms(min(timestamps_ms))
        # A batch usually collects records for milliseconds, so they are in one window.
        if max(timestamps_ms) < first_ms + WINDOW_MS:
            self.add_totals(AuditWindow(topic, first_ms, producer), AuditTotals.of(values))
            return
        # Applications may set timestamps in any order.
        values_by_start: dict[int, list[bytes | None]] = {}
        for timestamp_ms, value in zip(timestamps_ms, values, strict=True):
            values_by_start.setdefault(window_start_ms(timestamp_ms), []).append(value)
        for start_ms, found in values_by_start.items():
            self.add_totals(AuditWindow(topic, start_ms, producer), AuditTotals.of(found))

    def add_totals(self, window: AuditWindow, totals: AuditTotals) -> None:
        """Add the totals of records that were counted elsewhere."""
        self._totals[window] = self[window] + totals

    def add_all(self, other: AuditCounts) -> None:
        """Add all totals of `other`."""
        for window, totals in other.items():
            self.add_totals(window, totals)

    def take(self, limit: int) -> AuditCounts:
        """Remove the totals of up to `limit` windows, oldest entries first, and return them."""
        taken = AuditCounts()
        # The list is needed, because the loop changes the dictionary.
        for window in list(islice(self._totals, limit)):
            taken._totals[window] = self._totals.pop(window)
        return taken


def window_start_ms(timestamp_ms: int) -> int:
    """Return the start of the time window that contains a timestamp.

    >>> window_start_ms(119_999)
    60000
    """
    # In Python, a remainder is never negative. A record without a timestamp (-1) is thus in the
    # last window before 1970.
    return timestamp_ms - timestamp_ms % WINDOW_MS


def producer_of(headers: Iterable[tuple[str, bytes | None]]) -> str | None:
    """Return the name of the producer from a record's headers, or None without that header.

    As in Kafka's `Headers.lastHeader`, the last header with the name counts.

    >>> producer_of([("trace", b"1"), ("plog.audit", b"web-1")])
    'web-1'
    """
    found = None
    for name, value in headers:
        if name == AUDIT_HEADER:
            found = value
    # Any program may have written the header, so the name need not be UTF-8.
    return None if found is None else found.decode("utf-8", "replace")
