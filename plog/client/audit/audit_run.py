"""`run_audit`: one audit, in an order in which concurrent writes cause no false findings.

1. Read the reports. Their records were acknowledged before, so all of them are in the topics.
2. Look up the ends of the topics, and count the records before these ends. Records that are missing
   now are lost.
3. Look up where the topics start. Retention may have deleted records meanwhile, so windows before
   the first record are not compared.
4. Read the reports that have arrived since step 1. They may describe records that were counted, or
   later ones, so their records are in doubt (`AuditLedger.add`).

A record that was counted and not reported in step 4 is unreported, unless its window is recent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from plog.audit.bounds import AuditBounds, next_window_ms
from plog.audit.counts import AuditCounts
from plog.audit.ledger import AuditLedger
from plog.audit.report import AUDIT_TOPIC, InvalidAuditReport, parse_report
from plog.audit.result import AuditResult, compare
from plog.client.audit.audit_options import AuditOptions
from plog.client.values import ConsumerRecord
from plog.errors import OffsetOutOfRange, PlogError
from plog.types import TopicPartition, Uuid

Ranges: TypeAlias = Mapping[TopicPartition, tuple[int, int]]
"""The first offset, and the offset after the last one, of each partition."""
Partitions: TypeAlias = Collection[TopicPartition]


class AuditError(PlogError):
    """An audit cannot be completed; the message contains a remedy."""


class Lookup(Protocol):
    """What an audit asks a cluster; `TopicReader` describes the methods."""

    def topics(self) -> Collection[str]: ...
    def partitions(self, topics: Collection[str]) -> Mapping[TopicPartition, Uuid | None]: ...
    def starts(self, partitions: Partitions) -> Mapping[TopicPartition, int]: ...
    def ends(self, partitions: Partitions) -> Mapping[TopicPartition, int]: ...
    def written_ends(self, partitions: Partitions) -> Mapping[TopicPartition, int]: ...
    def first_at(
        self, partitions: Partitions, time_ms: int
    ) -> Mapping[TopicPartition, tuple[int, int] | None]: ...
    def records(
        self, partition: TopicPartition, start: int, end: int
    ) -> Iterator[ConsumerRecord]: ...


def run_audit(
    cluster: Lookup,
    options: AuditOptions,
    count: Callable[[Ranges], AuditCounts],
    *,
    now_ms: int,
) -> AuditResult:
    """Run an audit and return its result; `count` counts the records of ranges.

    Raises UnknownTopicOrPartition and ConfigError for missing topics, AuditError if a topic is
    recreated meanwhile, and the errors of `cluster` and `count`.
    """
    reports = _Reports(cluster, now_ms, AuditLedger(grace_ms=options.grace_ms))
    reports.read(is_late=False)
    existing = cluster.topics()
    reported = {window.topic for window in reports.ledger.windows()}
    topics = options.chosen(existing, reported)
    partitions = cluster.partitions(topics)
    ranges = _ranges(cluster, partitions, options)
    notes = [
        f"{topic} does not exist any more; its reports are not compared"
        for topic in sorted(reported - set(existing))
        if not options.topics and options.pattern is None
    ]
    notes += _open_transactions(cluster, ranges)
    actual = count({one: range_ for one, range_ in ranges.items() if range_[0] < range_[1]})
    _check_same_topics(cluster, partitions)
    bounds = AuditBounds(
        since_ms=options.first_ms,
        before_ms=options.before_ms,
        recent_ms=now_ms - options.grace_ms,
        retained_ms=_retained_ms(cluster, partitions, now_ms),
        reports_retained_ms=reports.retained_ms(),
    )
    reports.read(is_late=True)
    return compare(
        reports.ledger,
        actual,
        topics,
        bounds,
        audited_only=options.audited_only,
        invalid_reports=reports.invalid,
        notes=notes,
    )


@dataclass
class _Reports:
    """The reports of a cluster, and the position after those that have been read."""

    cluster: Lookup
    now_ms: int
    ledger: AuditLedger
    invalid: list[str] = field(default_factory=list)
    _positions: dict[TopicPartition, int] = field(default_factory=dict)
    _cut_ms: int | None = None
    """When the first report after deleted ones starts; None if retention has deleted none."""

    def read(self, *, is_late: bool) -> None:
        """Add all reports that have arrived since the last call."""
        partitions = list(self.cluster.partitions([AUDIT_TOPIC]))
        ends, starts = self.cluster.ends(partitions), self.cluster.starts(partitions)
        for partition in partitions:
            known = self._positions.get(partition, 0)
            position, is_cut = max(known, starts[partition]), starts[partition] > known
            while position < ends[partition]:
                try:
                    for record in self.cluster.records(partition, position, ends[partition]):
                        self._add(record, is_late=is_late, is_cut=is_cut)
                        position, is_cut = record.offset + 1, False
                    break
                except OffsetOutOfRange:
                    start = self.cluster.starts([partition])[partition]
                    if start <= position:
                        raise
                    position, is_cut = start, True
            if is_cut:  # All reports of the partition were deleted.
                self._cut_ms = self.now_ms
            self._positions[partition] = ends[partition]

    def _add(self, record: ConsumerRecord, *, is_late: bool, is_cut: bool) -> None:
        try:
            report = parse_report(record.value)
        except InvalidAuditReport as error:
            self.invalid.append(f"{record.topic}-{record.partition} at {record.offset}: {error}")
            return
        if is_cut:
            self._cut_ms = max(self._cut_ms or 0, report.since_ms)
        self.ledger.add(report, is_late=is_late)

    def retained_ms(self) -> int | None:
        """Return the start of the first window whose reports are complete; None if all are."""
        return None if self._cut_ms is None else next_window_ms(self._cut_ms)


def _ranges(
    cluster: Lookup, partitions: Partitions, options: AuditOptions
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offsets that an audit counts; all windows of its time range are in them."""
    ends, starts = dict(cluster.ends(partitions)), dict(cluster.starts(partitions))
    if options.first_ms is not None:
        # All earlier records have earlier timestamps. The opposite is not true at the end.
        for partition, at in cluster.first_at(partitions, options.first_ms).items():
            found = ends[partition] if at is None else at[0]
            starts[partition] = max(starts[partition], min(found, ends[partition]))
    return {one: (min(starts[one], end), end) for one, end in ends.items()}


def _open_transactions(cluster: Lookup, ranges: Ranges) -> Iterator[str]:
    for partition, end in cluster.written_ends(list(ranges)).items():
        # Without a transaction, records that have just been written have the same effect.
        read_end = ranges[partition][1]
        if end > read_end and cluster.ends([partition])[partition] == read_end:
            yield (
                f"{partition} was read up to offset {read_end}, where an open transaction starts;"
                " later records that are reported appear as lost"
            )


def _check_same_topics(cluster: Lookup, partitions: Mapping[TopicPartition, Uuid | None]) -> None:
    """Check that no topic was deleted. Raises AuditError."""
    now = cluster.partitions({partition.topic for partition in partitions})
    for partition, topic_id in partitions.items():
        if partition not in now or now[partition] != topic_id:
            raise AuditError(
                f"cannot audit {partition.topic}: it was deleted or recreated during the audit; run"
                " the audit again"
            )


def _retained_ms(cluster: Lookup, partitions: Partitions, now_ms: int) -> dict[str, int]:
    """Return when the complete windows start, for topics whose first records were deleted."""
    cut = [one for one, start in cluster.starts(partitions).items() if start > 0]
    found: dict[str, int] = {}
    for partition, at in cluster.first_at(cut, 0).items():
        # The timestamps of deleted records are unknown; they are assumed to be in order. If all
        # records were deleted, they may have been in any window.
        retained_ms = next_window_ms(now_ms if at is None else at[1])
        found[partition.topic] = max(found.get(partition.topic, 0), retained_ms)
    return found
