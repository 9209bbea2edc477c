"""The ledger of an audit: all reports of all producer instances, in any order.

The ledger recognizes repeated reports by their instance and number, and it finds missing reports.
It adds up what producers have reported for each window, and compares the result with the records
that topics contain.

More records than reported are either repeated or unreported. They count as repeated only if the
reports of the producer are complete for the window. Reports are complete if none is missing and
each instance either was closed or has continued to report after the window. An instance that was
killed before its first report is unknown: its records count as repeated if other instances of the
same producer have reported records in the same window.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from plog.audit.counts import WINDOW_MS, AuditCounts, AuditTotals, AuditWindow
from plog.audit.findings import AuditFinding, FindingKind
from plog.audit.report import AuditReport

GRACE_MS = 120_000
"""How long after its timestamp a record may be acknowledged: the default delivery.timeout.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingReports:
    """Consecutive reports of an instance that the ledger has not received.

    They contain what the producer has counted between `since_ms` and `until_ms`.
    """

    producer: str
    instance: str
    first: int
    last: int
    since_ms: int | None
    """None if the first report of the instance is missing."""
    until_ms: int

    def __str__(self) -> str:
        numbers = f"report {self.first}"
        if self.last > self.first:
            numbers = f"reports {self.first} to {self.last}"
        return f"{numbers} of instance {self.instance} of producer {self.producer}"


class _Instance:
    """The reports of one producer instance."""

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.times_by_number: dict[int, tuple[int, int]] = {}
        """The begin and the end of each report in ms."""
        self._is_final = False
        self._last_number = 0
        self._last_windows: frozenset[AuditWindow] = frozenset()

    def add(self, report: AuditReport) -> None:
        """Remember a report that the instance has not sent before."""
        self.times_by_number[report.number] = (report.since_ms, report.until_ms)
        # Reports arrive in any order, and only the last one says whether the instance goes on.
        if report.number > self._last_number:
            self._last_number = report.number
            self._is_final = report.is_final
            windows = [window for counts in _both(report) for window, _ in counts.items()]
            self._last_windows = frozenset(windows)

    @property
    def is_gapless(self) -> bool:
        """Whether no report is missing before the last one."""
        # Numbers start at 1, and each one is added only once.
        return len(self.times_by_number) == self._last_number

    def is_complete_for(self, window: AuditWindow, grace_ms: int) -> bool:
        """Return whether the instance will not report more records of a window."""
        if not self.is_gapless:
            return False
        _, until_ms = self.times_by_number[self._last_number]
        # A record can have any timestamp, so an instance whose last report contains the window may
        # continue to send records with timestamps in it, however old it is.
        is_past = until_ms >= window.window_ms + WINDOW_MS + grace_ms
        return self._is_final or (is_past and window not in self._last_windows)

    def missing(self, instance: str) -> Iterator[MissingReports]:
        """Yield each gap in the numbers."""
        previous, end_ms = 0, None
        for number in sorted(self.times_by_number):
            since_ms, until_ms = self.times_by_number[number]
            if number > previous + 1:
                yield MissingReports(
                    producer=self.producer,
                    instance=instance,
                    first=previous + 1,
                    last=number - 1,
                    since_ms=end_ms,
                    until_ms=since_ms,
                )
            previous, end_ms = number, until_ms


class AuditLedger:
    """The reports of an audit, and what they say about each window.

    >>> sent, found = AuditCounts(), AuditCounts()
    >>> for value in (b"1", b"2"):
    ...     sent.add("clicks", 60_000, value, "web-1")
    >>> report = AuditReport(
    ...     producer="web-1", instance="0" * 32, number=1, since_ms=0, until_ms=70_000,
    ...     is_final=True, counts=sent,
    ... )
    >>> ledger = AuditLedger()
    >>> ledger.add(report), ledger.add(report)
    (True, False)
    >>> found.add("clicks", 60_000, b"1", "web-1")
    >>> for finding in ledger.findings(found):
    ...     print(finding)
    clicks 1970-01-01T00:01:00Z web-1: 1 records lost (reported 2, found 1)
    """

    def __init__(self, *, grace_ms: int = GRACE_MS) -> None:
        self._grace_ms = grace_ms
        self._instances: dict[str, _Instance] = {}
        self._instances_by_producer: dict[str, list[_Instance]] = {}
        self._expected = AuditCounts()
        self._in_doubt = AuditCounts()
        self.repeated_reports = 0
        """The number of reports that were added again, and ignored."""
        self.conflicts: list[AuditReport] = []
        """Ignored reports with the number of another report but different contents.

        A producer does not send such reports; the topic has been changed by another program.
        """

    # -- reports --------------------------------------------------------------------------------

    def add(self, report: AuditReport, *, is_late: bool = False) -> bool:
        """Add a report; return False if the ledger already contains it and ignores it.

        A late report is one that was written after the topics were read. Its records may be in the
        topics or not, so they are in doubt.
        """
        instance = self._instances.get(report.instance)
        if instance is None:
            instance = self._instances[report.instance] = _Instance(report.producer)
            self._instances_by_producer.setdefault(report.producer, []).append(instance)
        # A producer never changes a report that has a number, so the times are enough to recognize
        # it, and the ledger need not keep the contents.
        known = instance.times_by_number.get(report.number)
        if known is not None or report.producer != instance.producer:
            if known == (report.since_ms, report.until_ms):
                self.repeated_reports += 1
            else:
                self.conflicts.append(report)
            return False
        instance.add(report)
        (self._in_doubt if is_late else self._expected).add_all(report.counts)
        # The producer does not know whether they were written, so they never count as lost.
        self._in_doubt.add_all(report.in_doubt)
        return True

    def missing_reports(self) -> list[MissingReports]:
        """Return the gaps in the numbers of each instance.

        Reports that follow the last known report of an instance cannot be noticed. If retention has
        deleted the first reports of an instance, they are listed, too.
        """
        return [gap for name, instance in self._instances.items() for gap in instance.missing(name)]

    def has_gaps(self, producer: str) -> bool:
        """Return whether reports of a producer are missing."""
        return not all(one.is_gapless for one in self._instances_by_producer.get(producer, ()))

    @property
    def producers(self) -> Collection[str]:
        """The names of all producers that have reported."""
        return self._instances_by_producer.keys()

    # -- windows --------------------------------------------------------------------------------

    def windows(self) -> set[AuditWindow]:
        """Return all windows for which a producer has reported records."""
        windows = {window for window, _ in self._expected.items()}
        return windows.union(window for window, _ in self._in_doubt.items())

    def expected(self, window: AuditWindow) -> AuditTotals:
        """Return the acknowledged records of a window that producers have reported."""
        return self._expected[window]

    def in_doubt(self, window: AuditWindow) -> AuditTotals:
        """Return the reported records of a window that may or may not be in the topic."""
        return self._in_doubt[window]

    def is_complete_for(self, window: AuditWindow) -> bool:
        """Return whether all reports about a window are known, as far as the ledger can tell."""
        # No producer has an empty name, so windows without a producer are never complete.
        instances = self._instances_by_producer.get(window.producer or "", ())
        return bool(instances) and all(
            instance.is_complete_for(window, self._grace_ms) for instance in instances
        )

    # -- the comparison -------------------------------------------------------------------------

    def findings(
        self,
        actual: AuditCounts,
        *,
        topics: Collection[str] | None = None,
        since_ms: int | None = None,
        before_ms: int | None = None,
    ) -> Iterator[AuditFinding]:
        """Compare the records that topics contain with the reports; yield what differs.

        Args:
            actual: the counts of all records of `topics` with timestamps in the time range.
            topics: only these topics (default: all topics).
            since_ms: only windows that start at or after this time.
            before_ms: only windows that start before this time.
        """
        windows = self.windows().union(window for window, _ in actual.items())
        # None cannot be compared with a name.
        for window in sorted(windows, key=lambda x: (x.topic, x.window_ms, x.producer or "")):
            if topics is not None and window.topic not in topics:
                continue
            if since_ms is not None and window.window_ms < since_ms:
                continue
            if before_ms is not None and window.window_ms >= before_ms:
                continue
            finding = self.finding(window, actual[window])
            if finding is not None:
                yield finding

    def finding(self, window: AuditWindow, actual: AuditTotals) -> AuditFinding | None:
        """Compare the records of one window with the reports; return None if they agree."""
        expected, in_doubt = self.expected(window), self.in_doubt(window)
        kind = self._kind(window, expected, in_doubt, actual)
        if kind is None:
            return None
        return AuditFinding(
            kind=kind, window=window, expected=expected, in_doubt=in_doubt, actual=actual
        )

    def _kind(
        self,
        window: AuditWindow,
        expected: AuditTotals,
        in_doubt: AuditTotals,
        actual: AuditTotals,
    ) -> FindingKind | None:
        # Records in doubt cannot stand in for acknowledged ones, so some are lost in any case.
        if actual.records < expected.records:
            return FindingKind.LOST
        if actual.records > expected.records + in_doubt.records:
            # If no report contains the window, an instance that was killed before its first report
            # may have sent the records.
            if expected and self.is_complete_for(window):
                return FindingKind.REPEATED
            return FindingKind.UNREPORTED
        # If some of the records in doubt were written, the values cannot be checked.
        if actual.records not in (expected.records, expected.records + in_doubt.records):
            return None
        # By the number of records, either none or all of those in doubt were written.
        same = expected if actual.records == expected.records else expected + in_doubt
        return None if actual == same else FindingKind.DIFFERENT


def _both(report: AuditReport) -> tuple[AuditCounts, AuditCounts]:
    return report.counts, report.in_doubt
