"""Resolution of a batch query's options to offset ranges.

A `LogLookup` answers every question about the cluster, so planning is tested without one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from plog.spark.options.source_options import SourceOptions
from plog.spark.reader.data_loss import LogBounds, data_loss_error, within_log
from plog.spark.reader.log_lookup import LogLookup, no_offset, resolve
from plog.spark.reader.offset_range import OffsetRange
from plog.spark.reader.range_filters import RangeFilters
from plog.spark.reader.task_planning import TaskLimits, plan_tasks
from plog.types import TopicPartition

log = logging.getLogger("plog.spark")


def plan_batch(
    lookup: LogLookup, options: SourceOptions, filters: RangeFilters | None = None
) -> list[OffsetRange]:
    """Return the range of each task of a batch query, without records that `filters` exclude.

    Raises DataLossError, NoOffsetForTime, ConfigError, and the errors of the lookups.
    """
    partitions = lookup.partitions(options.topics)
    bounds = lookup.bounds(partitions)
    ranges = _find_ranges(lookup, options, bounds)
    if filters is not None:
        # Lost records have been reported above, so that a query fails with and without filters.
        ranges = filters.narrow(ranges, lookup)
    record_bytes: dict[TopicPartition, float] = {}
    if options.max_bytes_per_partition is not None:
        # Every broker is asked for sizes, so they are only looked up if they are needed.
        for partition, size in lookup.size_bytes(partitions).items():
            # The average is per offset, not per record, because tasks are ranges of offsets.
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
    starts = resolve(lookup, options.starting, bounds)
    ends = resolve(lookup, options.ending, bounds)
    ranges: list[OffsetRange] = []
    # All losses are collected first, so that the error names every partition.
    losses: list[str] = []
    for partition, log_bounds in bounds.items():
        start, end = starts[partition], ends[partition]
        if start is None and options.timestamp_strategy == "error":
            raise no_offset(options.starting, partition)
        # As in the connector, the strategy applies only to the start.
        if end is None:
            end = log_bounds.end_offset
        elif options.ending.is_time:
            # The time may stand for a record that has arrived since the end was looked up.
            end = min(end, log_bounds.end_offset)
        wanted = OffsetRange(
            partition=partition,
            start_offset=log_bounds.end_offset if start is None else start,
            end_offset=end,
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
