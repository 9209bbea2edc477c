"""Records that a query should read but that its partitions no longer contain.

`within_log` finds them before any record is read, so no task waits for a record that will never
arrive. The option ``failOnDataLoss`` decides whether the query fails or continues. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from plog.errors import PlogError
from plog.spark.reader.offset_range import OffsetRange
from plog.types import TopicPartition


class DataLossError(PlogError):
    """Some records of a query are missing; the message names the partition and the offsets."""


class LogBounds(NamedTuple):
    """The offset of the first record of a log, and the offset after its last record."""

    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        """The number of offsets, which may exceed the number of records."""
        return self.end_offset - self.start_offset


def within_log(one: OffsetRange, log: LogBounds) -> tuple[OffsetRange, list[str]]:
    """Return the part of `one` that `log` contains, and a description of each missing part."""
    # An empty range loses nothing, even if it is outside of the log.
    if not one.size:
        return one, []
    name, losses = one.partition, []
    # Both bounds stay within the range, so that a range that is missing completely becomes empty.
    start = min(max(one.start_offset, log.start_offset), one.end_offset)
    end = max(min(one.end_offset, log.end_offset), start)
    if start > one.start_offset:
        losses.append(
            f"offsets {one.start_offset} to {start - 1} of {name} are missing: its log starts at"
            f" {log.start_offset}, because retention or delete-records removed earlier records"
        )
    # The offsets may come from an option, and then need not have existed.
    if end < one.end_offset:
        losses.append(
            f"offsets {end} to {one.end_offset - 1} of {name} are missing: its log ends at"
            f" {log.end_offset}, because it was truncated or its topic was recreated, or they were"
            " never written"
        )
    return OffsetRange(partition=name, start_offset=start, end_offset=end), losses


def deleted_partition(partition: TopicPartition, offset: int) -> str:
    """Return the description of the records from `offset` of a partition that does not exist."""
    return (
        f"offsets from {offset} of {partition} are missing: the partition does not exist, because"
        " its topic was deleted"
    )


def recreated_topic(partition: TopicPartition, offset: int) -> str:
    """Return the description of the records from `offset` of a topic with another id."""
    return (
        f"offsets from {offset} of {partition} are missing: its topic was deleted and recreated"
        " during the query; a new query, with a new checkpoint, reads the new topic"
    )


def truncated_log(partition: TopicPartition, offset: int, end_offset: int) -> str:
    """Return the description of offsets that a query has read, in a log that now ends before them.

    The position of the query is `offset`, and that of the log's end is `end_offset`.
    """
    return (
        f"offsets {end_offset} to {offset - 1} of {partition} are missing: its log ends at"
        f" {end_offset}, below the position of the query, because it was truncated or its topic"
        " was recreated"
    )


def data_loss_error(losses: Iterable[str]) -> DataLossError:
    """Return the error for the descriptions of missing parts."""
    return DataLossError(
        f"cannot read all records of the query: {'; '.join(losses)}; set failOnDataLoss=false to"
        " continue without them"
    )
