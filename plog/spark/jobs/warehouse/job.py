"""`run_warehouse`: write topics to Parquet tables by date and hour, each record exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.spark.jobs.folder_owner import query_of
from plog.spark.jobs.job_source import read_stream
from plog.spark.jobs.progress import Report, print_progress
from plog.spark.jobs.table_files import TableFiles
from plog.spark.jobs.warehouse.batch_writer import BatchWriter
from plog.spark.jobs.warehouse.hour_merge import HourMerge
from plog.spark.jobs.warehouse.table_layout import TableLayout
from plog.spark.jobs.warehouse.warehouse_options import WarehouseOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_warehouse(
    spark: SparkSession,
    options: WarehouseOptions,
    *,
    report: Report = print_progress,
    files: TableFiles | None = None,
) -> None:
    """Write the topics until the query is stopped, or has read what is available.

    After an interruption, the same call continues. Raises StreamingQueryException if a batch fails,
    for example because another query has written the folder.
    """
    writers: list[BatchWriter] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        if not writers:
            # The id of the query, which owns the folder, is known only while it processes a batch.
            client, made = options.source.client_options(), files or TableFiles()
            writers.append(BatchWriter.opened(options.table, query_of(batch), client, report, made))
        writers[0].write(batch, batch_id)

    # Also if no records arrive: where folders cannot be exchanged, an hour may be missing.
    HourMerge(TableLayout(options.table.output), files or TableFiles()).recover()
    rows = read_stream(spark, options.source, include_headers=True)
    writer = rows.writeStream.queryName(f"plog-warehouse {options.table.output}").foreachBatch(
        write
    )
    writer = options.trigger.apply(writer).option("checkpointLocation", str(options.checkpoint))
    writer.start().awaitTermination()
    for one in writers:
        one.finish(options.checkpoint)
