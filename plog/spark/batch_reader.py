"""The reader of a batch query: plans tasks in the driver and reads records in the workers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from plog.spark.batch_ranges import plan_batch
from plog.spark.cluster_lookup import ClusterLookup
from plog.spark.offset_range import OffsetRange
from plog.spark.range_reading import ReadingOptions, read_range
from plog.spark.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("plog.spark")


class BatchReader(DataSourceReader):
    """Reads the ranges that `options` resolve to when the query is planned.

    Spark pickles the reader for each task, so it holds no connections.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reading = ReadingOptions(
            client=options.client,
            include_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
        )

    def partitions(self) -> list[InputPartition]:
        """Return the range of each task."""
        for warning in self._options.warnings:
            log.warning("%s", warning)
        with ClusterLookup(self._options.client) as lookup:
            return [InputPartition(one) for one in plan_batch(lookup, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the records of one task."""
        wanted: OffsetRange | None = partition.value
        # Spark runs one task with None if there is no partition.
        return iter(()) if wanted is None else read_range(wanted, self._reading)
