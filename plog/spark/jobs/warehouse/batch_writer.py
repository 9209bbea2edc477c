"""`BatchWriter`: write a batch of records to the tables of their topics.

The tasks write into the staging folder, which readers ignore, and the driver then publishes the
files (warehouse_folder.py). A batch that is repeated has the same effect as one that is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plog.spark.jobs.progress import Report, counted
from plog.spark.jobs.table_files import TableFiles
from plog.spark.jobs.warehouse.parquet_merge import row_count
from plog.spark.jobs.warehouse.table_columns import TableColumns, read_columns, write_columns
from plog.spark.jobs.warehouse.table_layout import DEAD_LETTERS
from plog.spark.jobs.warehouse.table_rows import (
    PARTITION_COLUMNS,
    DecodedRows,
    dead_letter_rows,
    decoded_rows,
    json_kinds,
    of_topic,
    table_rows,
    topic_counts,
)
from plog.spark.jobs.warehouse.table_upkeep import TableUpkeep
from plog.spark.jobs.warehouse.warehouse_folder import WarehouseFolder
from plog.spark.jobs.warehouse.warehouse_options import TableOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMESTAMP_TYPE: Final = "spark.sql.parquet.outputTimestampType"


def now_ms() -> int:
    """Return the current time in ms since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class BatchWriter:
    """The driver's side of one query that writes to `folder`."""

    options: TableOptions
    client: Mapping[str, str]
    """The options that connect the query for dead letters to the cluster."""
    folder: WarehouseFolder
    upkeep: TableUpkeep
    report: Report
    clock: Callable[[], int] = now_ms
    last_batch: int | None = field(default=None, init=False)

    @classmethod
    def opened(
        cls,
        options: TableOptions,
        query: str,
        client: Mapping[str, str],
        report: Report,
        files: TableFiles,
    ) -> BatchWriter:
        """Open the folder for a query. Raises ConfigError if another query has written it."""
        folder = WarehouseFolder.opened(options.output, query, files)
        upkeep = TableUpkeep(folder, options.merges, report)
        return cls(options, client, folder, upkeep, report)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write the records of a batch; Spark may repeat the call."""
        self.folder.begin(batch_id)
        self.last_batch = batch_id
        # `begin` has recorded that the batch before will not be repeated, so its files may be
        # merged.
        self.upkeep.merge_closed(self.clock())
        # By default, Spark writes timestamps as INT96, which is deprecated, and in which other
        # programs find nanoseconds. Slices of a backfill use the session of the application.
        conf = batch.sparkSession.conf
        before = conf.get(_TIMESTAMP_TYPE)
        conf.set(_TIMESTAMP_TYPE, "TIMESTAMP_MICROS")
        batch = batch.persist()
        try:
            counts = topic_counts(batch)
            columns = self._evolved(batch, counts)
            for topic in sorted(counts):
                rows = of_topic(batch, topic) if len(counts) > 1 else batch
                self._stage(rows, topic, columns[topic])
            self._publish(batch_id, counts)
        finally:
            batch.unpersist()
            if before is not None:
                conf.set(_TIMESTAMP_TYPE, before)

    def finish(self, checkpoint: Path, first_batch: int = 0) -> None:
        """Merge what the last batch has left, when the query has ended.

        `first_batch` is the number under which Spark's batch 0 was written.
        """
        if self.last_batch is None:
            return
        spark_id = self.last_batch - first_batch
        # Otherwise, Spark will repeat the batch.
        if spark_id < 0 or (checkpoint / "commits" / str(spark_id)).exists():
            self.complete()

    def complete(self) -> None:
        """Merge what the last batch has left; it must not be repeated."""
        if self.last_batch is not None:
            self.folder.commit(self.last_batch)
            self.upkeep.merge_closed(self.clock(), is_end=True)

    # -- columns ----------------------------------------------------------------------------------

    def _evolved(self, batch: DataFrame, counts: Mapping[str, int]) -> dict[str, TableColumns]:
        """Add and widen the columns of each topic in a batch, and return them."""
        kinds = json_kinds(batch) if counts and self.options.values.is_inferred else {}
        found = {}
        for topic in counts:
            path = self.folder.layout.columns_of(topic)
            before = read_columns(self.folder.files, path)
            if self.options.values.is_inferred:
                after = before.with_kinds(kinds.get(topic, {}))
            else:
                fields = decoded_rows(batch, self.options.values, before).fields
                after = before.with_fields(fields)
            rewriting = before.rewriting or after.widened_since(before)
            if after != before or rewriting:
                # The columns are stored before a file has the new types. After a kill, `rewriting`
                # then says that other files may have the old ones.
                self._report_columns(topic, before, after)
                after = replace(after, rewriting=rewriting)
                write_columns(self.folder.files, path, after)
            # Before the batch, whose files have the new types.
            found[topic] = self.upkeep.rewrite_widened(topic, after) if rewriting else after
        return found

    def _report_columns(self, topic: str, before: TableColumns, after: TableColumns) -> None:
        types = {column.name: column.type for column in before.columns}
        for column in after.columns:
            old = types.get(column.name)
            if old is None:
                self.report(f"added the column {column.name} {column.type} to {topic}")
            elif old != column.type:
                self.report(f"widened the column {column.name} of {topic} to {column.type}")

    # -- files ------------------------------------------------------------------------------------

    def _stage(self, rows: DataFrame, topic: str, columns: TableColumns) -> None:
        """Let the tasks write the rows of a topic and its dead letters."""
        decoded = decoded_rows(rows, self.options.values, columns)
        layout = self.folder.layout
        writer = table_rows(decoded, columns).write.partitionBy(*PARTITION_COLUMNS)
        writer.parquet(str(layout.staged(topic)))
        self._write_dead_letters(decoded, layout.staged_dead_letters(topic))

    def _write_dead_letters(self, decoded: DecodedRows, staged: Path) -> None:
        letters = dead_letter_rows(decoded)
        if letters is None:
            return
        topic = self.options.dead_letter_topic
        # Files are published with the batch, so each dead letter is there once. In a topic, it may
        # be repeated.
        if topic is None:
            letters.write.parquet(str(staged))
            return
        writer = letters.write.format("plog").mode("append").options(**self.client)
        writer.option("topic", topic).save()

    def _publish(self, batch_id: int, counts: Mapping[str, int]) -> None:
        """Show readers the files of a batch, and report its size."""
        staged = {path: row_count(path) for path in self.folder.staged_files()}
        # Spark also writes a file for a task without rows.
        empty = frozenset(path for path, rows in staged.items() if not rows)
        dead_folder = self.folder.layout.staging / DEAD_LETTERS
        dead = sum(rows for path, rows in staged.items() if dead_folder in path.parents)
        records, stored = sum(counts.values()), sum(staged.values())
        if self.options.dead_letter_topic is not None:
            dead = records - stored
            stored = records
        # Files that lost or repeated a record must not reach readers.
        assert records == stored, f"batch {batch_id} has {records} records, but wrote {stored}"
        manifest = self.folder.publish(batch_id, empty)
        self.report(
            f"batch {batch_id}: {counted(records, 'record')} of {counted(len(counts), 'topic')}"
            f" in {counted(len(manifest.files), 'file')}, {counted(dead, 'dead letter')}"
        )
