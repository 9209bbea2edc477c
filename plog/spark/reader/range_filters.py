"""`RangeFilters`: conditions of a query that narrow the offset ranges of its partitions.

With ``pushFilters``, Spark offers the conditions of a query before it is planned. Spark applies all
of them to the rows again, so a condition that narrows nothing costs only reads; ranges must never
exclude a row that meets the conditions. Pure; `narrow` asks a `LogLookup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from plog.spark.reader.log_lookup import LogLookup
from plog.spark.reader.offset_range import OffsetRange
from plog.types import TopicPartition

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Condition(NamedTuple):
    """A comparison of a column with a value: ``=``, ``>``, ``>=``, ``<``, ``<=`` or ``in``."""

    column: str
    operator: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeFilters:
    """The conditions that all rows must meet; None stands for no condition."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    """The offset after the last one."""
    since_ms: int | None = None
    until_ms: int | None = None
    """The time before which records must have been created."""

    @classmethod
    def of(cls, conditions: Iterable[Condition]) -> RangeFilters:
        """Return what `conditions` require together; others than those below are ignored.

        Comparisons of ``offset`` and ``timestamp`` count, and ``=`` and ``in`` for ``topic`` and
        ``partition``.
        """
        topics: set[str] | None = None
        partitions: set[int] | None = None
        offsets = _Interval()
        times_us = _Interval()
        for column, operator, value in conditions:
            values = set(value) if operator == "in" else {value}
            # A comparison with null has rules of its own in SQL, which Spark applies to the rows.
            if None in values:
                continue
            if column == "topic" and operator in ("=", "in"):
                topics = values if topics is None else topics & values
            elif column == "partition" and operator in ("=", "in"):
                partitions = values if partitions is None else partitions & values
            elif column == "offset":
                offsets.restrict(operator, values)
            elif column == "timestamp":
                times_us.restrict(operator, {_microseconds(one) for one in values})
        return cls(
            topics=None if topics is None else frozenset(topics),
            partitions=None if partitions is None else frozenset(partitions),
            start_offset=offsets.start,
            end_offset=offsets.end,
            # Records have milliseconds, so the bounds are rounded up to the next one.
            since_ms=None if times_us.start is None else -(-times_us.start // 1000),
            until_ms=None if times_us.end is None else -(-times_us.end // 1000),
        )

    def narrow(self, ranges: Iterable[OffsetRange], lookup: LogLookup) -> list[OffsetRange]:
        """Return the parts of `ranges` that can contain matching records.

        The end of the time applies only to topics with LogAppendTime.
        """
        left = [self._by_offset(one) for one in ranges if self._includes(one.partition)]
        # Records without a timestamp have the time -1, and lookups do not find them.
        if self.since_ms is not None and self.since_ms > -1:
            # All records before the first one at or after this time are earlier, in any topic.
            left = _at_times(left, self.since_ms, lookup, _from)
        if self.until_ms is not None:
            # With CreateTime, a record with an earlier time may follow one with a later time, so
            # there is no offset after which all records are later.
            ordered = lookup.topics_with_append_time({one.partition.topic for one in left})
            by_append_time = [one for one in left if one.partition.topic in ordered]
            others = [one for one in left if one.partition.topic not in ordered]
            left = others + _at_times(by_append_time, self.until_ms, lookup, _before)
        # Tasks are then in the same order as without filters.
        return sorted(left, key=lambda one: one.partition)

    def _includes(self, partition: TopicPartition) -> bool:
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    def _by_offset(self, one: OffsetRange) -> OffsetRange:
        start = one.start_offset if self.start_offset is None else self.start_offset
        end = one.end_offset if self.end_offset is None else self.end_offset
        return _part(one, max(one.start_offset, start), min(one.end_offset, end))


@dataclass(slots=True)
class _Interval:
    """The integers from `start` up to, but not including, `end`; None means unbounded."""

    start: int | None = None
    end: int | None = None

    def restrict(self, operator: str, values: set[int]) -> None:
        """Apply a condition."""
        # The defaults turn an empty list, which matches nothing, into an empty interval.
        least, most = min(values, default=0), max(values, default=-1)
        starts = {"=": least, "in": least, ">=": least, ">": least + 1}
        ends = {"=": most + 1, "in": most + 1, "<=": most + 1, "<": most}
        if operator in starts:
            start = starts[operator]
            self.start = start if self.start is None else max(self.start, start)
        if operator in ends:
            self.end = ends[operator] if self.end is None else min(self.end, ends[operator])


def _microseconds(time: datetime) -> int:
    # Integers, because a float cannot represent microseconds since 1970 exactly.
    since = time.astimezone(UTC) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _at_times(
    ranges: list[OffsetRange],
    time_ms: int,
    lookup: LogLookup,
    narrowed: Callable[[OffsetRange, int | None], OffsetRange],
) -> list[OffsetRange]:
    # Negative times have other meanings in ListOffsets: -1 is the latest offset, -2 the earliest.
    found = lookup.at_times(dict.fromkeys((one.partition for one in ranges), max(0, time_ms)))
    return [narrowed(one, found[one.partition]) for one in ranges]


def _from(one: OffsetRange, offset: int | None) -> OffsetRange:
    # No record is at or after the time.
    start = one.end_offset if offset is None else max(one.start_offset, offset)
    return _part(one, start, one.end_offset)


def _before(one: OffsetRange, offset: int | None) -> OffsetRange:
    end = one.end_offset if offset is None else min(one.end_offset, offset)
    return _part(one, one.start_offset, end)


def _part(one: OffsetRange, start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=one.partition, start_offset=start, end_offset=max(start, end))
