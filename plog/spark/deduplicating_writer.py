"""The writer of a streaming query with the option ``deduplicate``.

Before each batch, Spark creates the writer in the driver, which reads the last note, and pickles it
for the tasks. Afterwards, it creates another one in the driver to commit or abort the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from plog.spark.deduplicated_writing import commit_batch, read_last_note, write_task
from plog.spark.deduplication import DeduplicationError, TaskOutcome
from plog.spark.sink_notes import TaskId
from plog.spark.sink_options import SinkOptions

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


class DeduplicatingWriter(DataSourceStreamArrowWriter):
    """Writes each row of a streaming query once. It holds no connections."""

    def __init__(self, options: SinkOptions, name: str) -> None:
        self._options = options
        self._name = name
        self._last = read_last_note(options, name)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> TaskWritten:
        """Write the rows of one task of a batch."""
        return TaskWritten(
            write_task(self._options, self._name, _current_task(), self._last, iterator)
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Write the note of the batch; if this fails, Spark repeats the batch."""
        outcomes = [one.outcome for one in messages if isinstance(one, TaskWritten)]
        if outcomes:
            commit_batch(self._options, self._name, outcomes, self._last)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the repeated batch finds the records of this one."""


def _current_task() -> TaskId:
    context = TaskContext.get()
    query = context and context.getLocalProperty(_QUERY_ID)
    batch = context and context.getLocalProperty(_BATCH_ID)
    if context is None or query is None or batch is None:
        raise DeduplicationError(
            "cannot write without duplicates: Spark passes no id of the query to the task; remove"
            " the option deduplicate"
        )
    return TaskId(query, int(batch), context.partitionId())
