"""The writer of a streaming query with the option ``deduplicate``.

Before each batch, Spark creates the writer in the driver, which reads the notes, and pickles it for
the tasks. Afterwards, it creates another one in the driver to commit or abort the batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from plog.spark.options.sink_options import SinkOptions
from plog.spark.sink.deduplicated_writing import commit_batch, read_notes, write_task
from plog.spark.sink.deduplication import BatchPlan, DeduplicationError, TaskOutcome
from plog.spark.sink.record_marks import BatchId
from plog.spark.worker_check import CheckedPickle

if TYPE_CHECKING:
    import pyarrow

# Local properties of the tasks of a streaming query: StreamExecution.QUERY_ID_KEY and
# MicroBatchExecution.BATCH_ID_KEY.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass
class TaskWritten(WriterCommitMessage):
    """The message of a successful task to the driver."""

    outcome: TaskOutcome


class DeduplicatingWriter(CheckedPickle, DataSourceStreamArrowWriter):
    """Writes each row of a streaming query once. It holds no connections."""

    def __init__(self, options: SinkOptions, name: str) -> None:
        self._options = options
        self._name = name
        # Spark repeats a batch under the same number, so each execution has an id of its own.
        self._plan = BatchPlan(run=str(uuid.uuid4()), notes=read_notes(options, name))

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> TaskWritten:
        """Write the rows of one task of a batch."""
        batch, task = _current_task()
        return TaskWritten(write_task(self._options, self._name, batch, task, self._plan, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Complete the batch and write its note; if this fails, Spark repeats the batch."""
        # `batchId` is the same in other queries. The outcomes also have the id of the query.
        outcomes = [one.outcome for one in messages if isinstance(one, TaskWritten)]
        # A batch without tasks has written nothing.
        if outcomes:
            commit_batch(self._options, self._name, outcomes, self._plan.notes)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the repeated batch finds the records of this one."""


def _current_task() -> tuple[BatchId, int]:
    """Return the batch and the number of the task that this worker runs."""
    context = TaskContext.get()
    query = context and context.getLocalProperty(_QUERY_ID)
    batch = context and context.getLocalProperty(_BATCH_ID)
    if context is None or query is None or batch is None:
        raise DeduplicationError(
            "cannot write without duplicates: Spark passes no id of the query to the task; remove"
            " the option deduplicate"
        )
    return BatchId(query, int(batch)), context.partitionId()
