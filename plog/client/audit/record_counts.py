"""`count_records`: count the records of topics with a consumer, a partition at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from plog.audit.counts import AuditCounts, producer_of
from plog.client.audit.audit_run import AuditError, Lookup, Ranges
from plog.client.values import ConsumerRecord
from plog.errors import OffsetOutOfRange, RequestTimedOut
from plog.types import TopicPartition

_CHUNK = 10_000
"""Records that are counted together, which costs less than counting each."""


def count_records(cluster: Lookup, ranges: Ranges, advance: Callable[[int], object]) -> AuditCounts:
    """Return the counts of all records in `ranges`; `advance` receives numbers of offsets.

    Records that retention deletes meanwhile are not counted. Raises AuditError if a log ends before
    its range, and the errors of `cluster`.
    """
    counts = AuditCounts()
    for partition, (start, end) in ranges.items():
        position = start
        while position < end:
            try:
                for chunk in _chunks(cluster.records(partition, position, end)):
                    _add(counts, partition.topic, chunk)
                    advance(chunk[-1].offset + 1 - position)
                    position = chunk[-1].offset + 1
                advance(end - position)
                position = end
            except OffsetOutOfRange:
                position = _after_deleted(cluster, partition, position, end)
            except RequestTimedOut as error:
                raise AuditError(
                    f"cannot count the records of {partition} up to offset {end}: {error}; if the"
                    " topic was recreated or truncated, run the audit again"
                ) from error
    return counts


def _chunks(records: Iterator[ConsumerRecord]) -> Iterator[list[ConsumerRecord]]:
    while chunk := list(islice(records, _CHUNK)):
        yield chunk


def _add(counts: AuditCounts, topic: str, records: list[ConsumerRecord]) -> None:
    by_producer: dict[str | None, tuple[list[int], list[bytes | None]]] = {}
    for record in records:
        times, values = by_producer.setdefault(producer_of(record.headers), ([], []))
        times.append(record.timestamp)
        values.append(record.value)
    for producer, (times, values) in by_producer.items():
        counts.add_batch(topic, times, values, producer)


def _after_deleted(cluster: Lookup, partition: TopicPartition, position: int, end: int) -> int:
    """Return the offset of the first record that retention has not deleted.

    Raises OffsetOutOfRange if no record was deleted.
    """
    start = cluster.starts([partition])[partition]
    if start <= position:
        raise OffsetOutOfRange(f"{partition} does not contain offset {position}")
    return min(start, end)
