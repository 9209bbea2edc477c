"""The writers of batch and streaming queries: a task writes rows, a commit has nothing to do.

A record is visible as soon as it is written, so the sink cannot undo the tasks of a failed query.
Every output mode of a stream appends records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from plog.client.faces.blocking.bulk_sender import BulkSender
from plog.spark.options.sink_options import SinkOptions
from plog.spark.sink.record_writing import write_rows
from plog.spark.sink.worker_producers import worker_producer
from plog.spark.worker_check import CheckedPickle

if TYPE_CHECKING:
    import pyarrow


@dataclass
class RowsWritten(WriterCommitMessage):
    """The outcome of a task."""

    # Spark requires a message of each task, but the sink has nothing to commit.
    count: int


# Arrow writers receive whole batches. For others, pyspark creates a Row object for each row.
class BatchWriter(CheckedPickle, DataSourceArrowWriter):
    """Writes the rows of a batch query. Spark pickles the writer, so it holds no connections."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> RowsWritten:
        """Write the rows of one task."""
        return _write(self._options, iterator)


class StreamWriter(CheckedPickle, DataSourceStreamArrowWriter):
    """Writes the rows of a streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> RowsWritten:
        """Write the rows of one task of a batch."""
        return _write(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the records are already acknowledged."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: Spark repeats the batch."""


def _write(options: SinkOptions, batches: Iterator[pyarrow.RecordBatch]) -> RowsWritten:
    with worker_producer(options.client) as producer:
        return RowsWritten(write_rows(BulkSender(producer), batches, options.topic))
