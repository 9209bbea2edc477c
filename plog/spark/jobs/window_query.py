"""`WindowQuery`: the streaming query of a job that groups events by windows of time.

A second query writes values that cannot be decoded to a topic, because the aggregation would lose
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from plog.spark.jobs.event_columns import decoded_events
from plog.spark.jobs.job_source import JobSource, JobTrigger, read_stream
from plog.spark.jobs.late_rows import LateRows
from plog.spark.jobs.progress import Report, counted
from plog.spark.jobs.value_format import RAW, ValueFormat
from plog.spark.values.dead_letter_rows import dead_letters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_POLL_S: Final = 5


class WindowOptions(Protocol):
    """The options that the queries of all such jobs need."""

    @property
    def source(self) -> JobSource: ...
    @property
    def values(self) -> ValueFormat: ...
    @property
    def checkpoint(self) -> str | None: ...
    @property
    def dead_letter_topic(self) -> str | None: ...
    @property
    def trigger(self) -> JobTrigger: ...


@dataclass(frozen=True, slots=True)
class WindowQuery:
    """The queries of the job `job`; the checkpoint of the first one is in the folder `part`."""

    job: str
    part: str
    options: WindowOptions

    def run(
        self,
        spark: SparkSession,
        grouped: Callable[[DataFrame], DataFrame],
        write: Callable[[DataFrame, int], None],
        report: Report,
    ) -> None:
        """Run until the query is stopped, or has read what is available.

        `grouped` aggregates the stream of decoded events, and `write` receives the windows that
        each batch completes. Raises StreamingQueryException if a batch fails.
        """
        options = self.options
        # Headers take time to read, and only dead letters keep them.
        has_letters = options.dead_letter_topic is not None
        rows = read_stream(spark, options.source, include_headers=has_letters)
        # In append mode, Spark returns a window in a single batch, when the watermark has passed
        # its end.
        writer = grouped(decoded_events(rows, options.values)).writeStream.outputMode("append")
        # Spark rejects a second query with the same name in a session.
        writer = writer.queryName(f"plog-{self.job} {options.checkpoint}").foreachBatch(write)
        writer = writer.option("checkpointLocation", f"{options.checkpoint}/{self.part}")
        query = options.trigger.apply(writer).start()
        letters = self._start_dead_letters(rows)
        late = LateRows()

        def report_late() -> None:
            if found := late.count(query.recentProgress):
                report(f"ignored at least {counted(found, 'late record')}")

        _await([query] if letters is None else [query, letters], report_late)

    def _start_dead_letters(self, rows: DataFrame) -> StreamingQuery | None:
        options = self.options
        if options.dead_letter_topic is None or options.values.name == RAW:
            return None
        writer = dead_letters(decoded_events(rows, options.values)).writeStream.format("plog")
        writer = writer.options(**options.source.client_options())
        writer = writer.option("topic", options.dead_letter_topic)
        writer = writer.queryName(f"plog-{self.job}-dead-letters {options.checkpoint}")
        # Queries cannot share a checkpoint, because each has batches of its own.
        writer = writer.option("checkpointLocation", f"{options.checkpoint}/dead-letters")
        return options.trigger.apply(writer).start()


def _await(queries: list[StreamingQuery], poll: Callable[[], None]) -> None:
    """Wait until all queries have ended; if one fails, stop the others."""
    try:
        while any(one.isActive for one in queries):
            for one in queries:
                # Raises the exception of a query that has failed.
                one.awaitTermination(_POLL_S)
            poll()
        for one in queries:
            # A query may have failed while the loop waited for another one.
            one.awaitTermination()
        # The last triggers may have ended after the last poll.
        poll()
    finally:
        for one in queries:
            one.stop()
