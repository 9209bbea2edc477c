"""Resolution of a batch query's options to offset ranges.

`find_ranges` asks a `LogLookup` for everything that it needs to know about the cluster, so it is
tested without one; cluster_lookup.py provides the real lookups.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from plog.errors import PlogError
from plog.spark.data_loss import LogBounds, data_loss_error, within_log
from plog.spark.offset_bound import EARLIEST, LATEST, OffsetBound
from plog.spark.offset_range import OffsetRange
from plog.spark.source_options import SourceOptions
from plog.spark.task_planning import TaskLimits, plan_tasks
from plog.spark.topic_choice import TopicChoice
from plog.types import TopicPartition

log = logging.getLogger("plog.spark")


class NoOffsetForTime(PlogError):
    """A partition has no record at or after a time at which the query should start."""


class LogLookup(Protocol):
    """Lookups of partitions and offsets in a cluster."""

    def partitions(self, topics: TopicChoice) -> list[TopicPartition]:
        """Return the existing partitions of a query, sorted."""
        ...

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds]:
        """Return the start and the end of each log."""
        ...

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record at or after each time in ms, or None."""
        ...

    def size_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the size of each log on disk."""
        ...


def plan_batch(lookup: LogLookup, options: SourceOptions) -> list[OffsetRange]:
    """Return the range of each task of a batch query.

    Raises DataLossError, NoOffsetForTime, ConfigError, and the errors of the lookups.
    """
    partitions = lookup.partitions(options.topics)
    bounds = lookup.bounds(partitions)
    ranges = _find_ranges(lookup, options, bounds)
    record_bytes: dict[TopicPartition, float] = {}
    if options.max_bytes_per_partition is not None:
        for partition, size in lookup.size_bytes(partitions).items():
            offsets = bounds[partition].end_offset - bounds[partition].start_offset
            record_bytes[partition] = size / max(1, offsets)
    limits = TaskLimits(
        min_tasks=options.min_partitions,
        max_records=options.max_records_per_partition,
        max_bytes=options.max_bytes_per_partition,
        record_bytes=record_bytes,
    )
    return plan_tasks(ranges, limits)


def _find_ranges(
    lookup: LogLookup, options: SourceOptions, bounds: Mapping[TopicPartition, LogBounds]
) -> list[OffsetRange]:
    starts = _resolved(lookup, options.starting, bounds)
    ends = _resolved(lookup, options.ending, bounds)
    ranges: list[OffsetRange] = []
    losses: list[str] = []
    for partition, log_bounds in bounds.items():
        start, end = starts[partition], ends[partition]
        if start is None and options.timestamp_strategy == "error":
            raise _no_offset(options.starting, partition)
        wanted = OffsetRange(
            partition=partition,
            start_offset=log_bounds.end_offset if start is None else start,
            # As in the connector, the strategy applies only to the start.
            end_offset=log_bounds.end_offset if end is None else end,
        )
        found, missing = within_log(wanted, log_bounds)
        ranges.append(found)
        losses += missing
    if losses:
        error = data_loss_error(losses)
        if options.fail_on_data_loss:
            raise error
        log.warning("continuing after data loss: %s", "; ".join(losses))
    return ranges


def _resolved(
    lookup: LogLookup, bound: OffsetBound, bounds: Mapping[TopicPartition, LogBounds]
) -> dict[TopicPartition, int | None]:
    """Return an offset for each partition; None if no record is at or after the bound's time."""
    values = bound.by_partition(bounds.keys())
    if bound.is_time:
        return lookup.at_times(values)
    special = {
        EARLIEST: lambda partition: bounds[partition].start_offset,
        LATEST: lambda partition: bounds[partition].end_offset,
    }
    return {
        partition: special[value](partition) if value in special else value
        for partition, value in values.items()
    }


def _no_offset(bound: OffsetBound, partition: TopicPartition) -> NoOffsetForTime:
    value = bound.value if isinstance(bound.value, int) else bound.value[partition]
    return NoOffsetForTime(
        f"cannot start at {bound.option}={value}: {partition} has no record at or after this time;"
        " set startingOffsetsByTimestampStrategy=latest to start such partitions at their end"
    )
