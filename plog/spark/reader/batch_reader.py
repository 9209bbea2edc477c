"""The reader of a batch query: plans tasks in the driver and reads records in the workers.

Each side imports only what it needs, because a query starts a Python process for each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from plog.spark.options.source_options import SourceOptions
from plog.spark.reader.offset_range import OffsetRange
from plog.spark.reader.range_filters import Condition, RangeFilters
from plog.spark.reader.reading_options import ReadingOptions
from plog.spark.worker_check import CheckedPickle

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("plog.spark")


class BatchReader(CheckedPickle, DataSourceReader):
    """Reads the ranges that `options` resolve to when the query is planned.

    Spark pickles the reader for each task, so it holds no connections.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reading = ReadingOptions.of(options)
        self._filters: RangeFilters | None = None

    def partitions(self) -> list[InputPartition]:
        """Return the range of each task."""
        from plog.spark.reader.batch_ranges import plan_batch
        from plog.spark.reader.cluster_lookup import ClusterLookup

        for warning in self._options.warnings:
            log.warning("%s", warning)
        with ClusterLookup(self._options.client) as lookup:
            tasks = plan_batch(lookup, self._options, self._filters)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the records of one task."""
        from plog.spark.reader.range_reading import read_range

        wanted: OffsetRange | None = partition.value
        # Spark runs one task with None if there is no partition.
        return iter(()) if wanted is None else read_range(wanted, self._reading)


class FilteringBatchReader(BatchReader):
    """A reader to which Spark pushes the filters of the query (``pushFilters``).

    It is a class of its own, because Spark rejects every reader that defines `pushFilters` unless
    its setting ``spark.sql.python.filterPushdown.enabled`` is true.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters for `partitions`, and return all of them, so that Spark applies them."""
        # A longer attribute names a field of a struct, on which the ranges do not depend.
        conditions = [
            Condition(one.attribute[0], operator, one.value)
            for one in filters
            if (operator := _OPERATORS.get(type(one))) and len(one.attribute) == 1
        ]
        self._filters = RangeFilters.of(conditions)
        # Spark compares the result with its own filters by identity, so they must be the same
        # objects.
        return filters


_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    # It differs from EqualTo only for null, which `RangeFilters.of` leaves to Spark.
    EqualNullSafe: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
