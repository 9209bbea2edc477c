"""`LogLookup`: what the planning of a query asks about a cluster, and bounds resolved with it.

cluster_lookup.py sends the requests; tests answer from a dictionary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from plog.errors import PlogError
from plog.spark.options.offset_bound import EARLIEST, LATEST, OffsetBound
from plog.spark.options.topic_choice import TopicChoice
from plog.spark.reader.data_loss import LogBounds
from plog.types import TopicPartition, Uuid


class NoOffsetForTime(PlogError):
    """A partition has no record at or after a time at which the query should start."""


class LogLookup(Protocol):
    """Lookups of partitions and offsets in a cluster."""

    def partitions(
        self, topics: TopicChoice, *, skip_missing: bool = False
    ) -> Mapping[TopicPartition, Uuid | None]:
        """Return the partitions of a query, sorted, with the ids of their topics if known.

        Raises UnknownTopicOrPartition for a missing topic or partition, unless `skip_missing`.
        """
        ...

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds]:
        """Return the start and the end of each log.

        Raises UnknownTopicOrPartition if a topic has been deleted since `partitions` found it.
        """
        ...

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record at or after each time in ms, or None."""
        ...

    def topics_with_append_time(self, topics: Collection[str]) -> set[str]:
        """Return those of `topics` whose records have the time at which they were appended."""
        ...

    def size_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the size of each log on disk."""
        ...


def resolve(
    lookup: LogLookup, bound: OffsetBound, bounds: Mapping[TopicPartition, LogBounds]
) -> dict[TopicPartition, int | None]:
    """Return an offset for each partition; None if no record is at or after the bound's time."""
    values = bound.by_partition(bounds.keys())
    if bound.is_time:
        return lookup.at_times(values)
    # The bounds already contain these offsets. Another lookup could return later ones than those
    # with which the ranges are compared.
    special = {
        EARLIEST: lambda partition: bounds[partition].start_offset,
        LATEST: lambda partition: bounds[partition].end_offset,
    }
    return {
        # Other offsets stay as they are, because `within_log` compares them with the log.
        partition: special[value](partition) if value in special else value
        for partition, value in values.items()
    }


def no_offset(bound: OffsetBound, partition: TopicPartition) -> NoOffsetForTime:
    """Return the error for a `partition` without a record at or after the bound's time."""
    value = bound.value if isinstance(bound.value, int) else bound.value[partition]
    return NoOffsetForTime(
        f"cannot start at {bound.option}={value}: {partition} has no record at or after this time;"
        " set startingOffsetsByTimestampStrategy=latest to start such partitions at their end"
    )
