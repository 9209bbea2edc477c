"""The reader of a streaming query: Spark asks it for the offsets and the tasks of each batch.

Spark runs it in a process of the driver for as long as the query runs, and pickles another instance
for the tasks in the workers. Each side imports only what it needs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from plog.settings import INT_MAX
from plog.spark.options.offsets_json import nest_offsets, read_offsets
from plog.spark.options.source_options import SourceOptions
from plog.spark.reader.offset_range import OffsetRange
from plog.spark.reader.reading_options import ReadingOptions
from plog.spark.worker_check import CheckedPickle

if TYPE_CHECKING:
    import pyarrow

    from plog.spark.reader.stream_driver import StreamDriver
    from plog.spark.reader.stream_planning import StreamPlanner

log = logging.getLogger("plog.spark")


class StreamReader(CheckedPickle, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the partitions that `options` choose, in batches between offsets.

    Offsets are dictionaries of Spark's JSON: ``{"topic": {"0": 23}}``, the next offset of each
    partition.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reading = ReadingOptions.of(options)
        self._driver: StreamDriver | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The tasks need only the options; connections cannot be pickled.
        return self.__dict__ | {"_driver": None}

    # -- in the driver --------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query starts."""
        return nest_offsets(self._planner().initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit other than ReadAllAvailable, which is kept for triggers.

        Spark passes this limit to `latestOffset`, or ReadAllAvailable if the trigger overrides the
        limits.
        """
        # Spark has no limit that stands for several options, so the planner reads them from the
        # options.
        return ReadMaxRows(self._options.max_offsets_per_trigger or INT_MAX)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end at what is the latest offset now."""
        self._planner().stop_at_latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch."""
        planner = self._planner()
        known = read_offsets(start)
        # Spark asks for the next batch after it has completed the last one, which ended at `start`.
        # Its own notice, `commit`, arrives a batch later, and never for the last batch.
        assert self._driver is not None
        self._driver.progress.report(known, self._driver.clock.now_ms())
        all_available = isinstance(limit, ReadAllAvailable)
        return nest_offsets(planner.latest(known, all_available=all_available))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the logs, from which Spark's progress reports the lag."""
        newest = self._planner().newest()
        return None if newest is None else nest_offsets(newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the range of each task of a batch."""
        tasks = self._planner().tasks(read_offsets(start), read_offsets(end))
        return [InputPartition(task) for task in tasks]

    def _planner(self) -> StreamPlanner:
        if self._driver is None:
            # Workers only read, so they do not import the planning.
            from plog.spark.reader.stream_driver import StreamDriver

            for warning in self._options.warnings:
                log.warning("%s", warning)
            self._driver = StreamDriver(self._options)
        return self._driver.planner

    # -- in the workers -------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the records of one task."""
        from plog.spark.reader.range_reading import read_range

        wanted: OffsetRange | None = partition.value
        return iter(()) if wanted is None else read_range(wanted, self._reading)
