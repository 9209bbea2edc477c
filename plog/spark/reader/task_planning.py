"""Division of a query's offset ranges into the ranges of its tasks.

A plan depends only on its arguments, so that a repeated batch has the same tasks. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plog.spark.reader.offset_range import OffsetRange
from plog.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """The options that influence the number of tasks; None means no limit.

    `min_tasks` (``minPartitions``) is not reached if there are fewer offsets. `max_bytes` applies
    to partitions with a known `record_bytes`, the average size of a record in the log.
    """

    min_tasks: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    record_bytes: Mapping[TopicPartition, float] = field(default_factory=dict)


def plan_tasks(ranges: Iterable[OffsetRange], limits: TaskLimits) -> list[OffsetRange]:
    """Return the range of each task, in the order of `ranges`, without empty ones."""
    wanted = [one for one in ranges if one.size]
    parts = [_parts_within_limits(one, limits) for one in wanted]
    _divide_largest(wanted, parts, limits.min_tasks or 0)
    return [task for one, count in zip(wanted, parts, strict=True) for task in one.split(count)]


def _parts_within_limits(one: OffsetRange, limits: TaskLimits) -> int:
    """Return how many tasks `one` needs so that none exceeds the maximum."""
    most = one.size
    if limits.max_records is not None:
        most = min(most, limits.max_records)
    record_bytes = limits.record_bytes.get(one.partition, 0.0)
    if limits.max_bytes is not None and record_bytes > 0:
        # A task has at least one offset, even if the record exceeds the limit.
        most = min(most, max(1, int(limits.max_bytes / record_bytes)))
    return -(-one.size // most)


def _divide_largest(ranges: list[OffsetRange], parts: list[int], min_tasks: int) -> None:
    """Add parts to the ranges with the largest tasks until there are `min_tasks`."""
    missing = min(min_tasks, sum(one.size for one in ranges)) - sum(parts)
    # The sizes are negated, because the first entry of a heap is the smallest. Among equal sizes,
    # the index decides, so that the result is always the same.
    heap = [(-one.size / parts[index], index) for index, one in enumerate(ranges)]
    heapq.heapify(heap)
    for _ in range(missing):
        _, index = heap[0]
        parts[index] += 1
        heapq.heapreplace(heap, (-ranges[index].size / parts[index], index))
