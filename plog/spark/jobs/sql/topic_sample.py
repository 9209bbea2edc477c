"""`TopicReading`: the offsets of a topic that a query reads, and its newest values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from plog.client.values import ConsumerRecord
from plog.errors import OffsetOutOfRange
from plog.types import TopicPartition


class Lookup(Protocol):
    """What the query asks a cluster; `TopicReader` describes the methods."""

    def partitions(self, topics: Collection[str]) -> Mapping[TopicPartition, object]: ...
    def starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def records(
        self, partition: TopicPartition, start: int, end: int
    ) -> Iterator[ConsumerRecord]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReading:
    """The end offsets of a topic, which are the same for all parts of a query, and a sample."""

    ends: Mapping[TopicPartition, int]
    values: tuple[bytes | None, ...] = ()


def read_sample(cluster: Lookup, topic: str, sample_size: int) -> TopicReading:
    """Return the ends of a topic, and the values of the newest `sample_size` of each partition."""
    partitions = list(cluster.partitions([topic]))
    ends, starts = cluster.ends(partitions), cluster.starts(partitions)
    values: list[bytes | None] = []
    for partition in partitions:
        # Compaction and transactions leave gaps, so the sample may be smaller.
        start = max(starts[partition], ends[partition] - sample_size)
        if start >= ends[partition]:
            continue
        try:
            found = cluster.records(partition, start, ends[partition])
            values += [record.value for record in found]
        except OffsetOutOfRange:
            # Retention has deleted the newest records, so there is nothing left to read.
            continue
    return TopicReading(ends=ends, values=tuple(values))
