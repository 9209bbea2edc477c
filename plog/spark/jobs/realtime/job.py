"""`run_realtime`: count the records of each window, and write the most frequent names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plog.spark.jobs.event_columns import event_text, event_time
from plog.spark.jobs.job_source import append_records
from plog.spark.jobs.progress import Report, counted, print_progress
from plog.spark.jobs.realtime.realtime_options import RealtimeOptions
from plog.spark.jobs.window_query import WindowQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIME: Final = "__plog_time"


def run_realtime(
    spark: SparkSession, options: RealtimeOptions, *, report: Report = print_progress
) -> None:
    """Count until the query is stopped, or has read what is available.

    Raises StreamingQueryException if a batch fails.
    """

    def write(batch: DataFrame, batch_id: int) -> None:
        # Without persist, Spark would compute the batch once for the console and once for the
        # topic.
        top = top_rows(batch, options.top).persist()
        try:
            if options.console:
                _print_windows(top, batch_id, report)
            if options.output_topic is not None:
                append_records(result_records(top), options.source, options.output_topic)
        finally:
            top.unpersist()

    query = WindowQuery("realtime", "counts", options)
    query.run(spark, lambda events: window_counts(events, options), write, report)


def window_counts(rows: DataFrame, options: RealtimeOptions) -> DataFrame:
    """Return the columns ``window``, ``name`` and ``count``; rows without a name do not count."""
    from pyspark.sql import functions as F

    named = rows.select(event_time(options.time).alias(_TIME), event_text(options.by).alias("name"))
    # A watermark has no effect on an aggregation before it.
    named = named.where("name IS NOT NULL").withWatermark(_TIME, options.watermark)
    window = F.window(_TIME, options.window, options.slide)
    return named.groupBy(window.alias("window"), "name").count()


def top_rows(counts: DataFrame, top: int) -> DataFrame:
    """Return the most frequent names of each window in a batch, with their rank."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # Spark returns all counts of a window in the same batch, when the watermark has passed its end,
    # so the ranks in a batch are final.
    window = Window.partitionBy("window")
    # The names make the order unique. Otherwise, a repeated batch could write other ranks under the
    # same keys.
    ordered = window.orderBy(F.desc("count"), "name")
    return (
        counts.withColumn("rank", F.row_number().over(ordered))
        .withColumn("total", F.sum("count").over(window))
        .where(F.col("rank") <= top)
        .select("window.start", "window.end", "rank", "name", "count", "total")
    )


def result_records(top: DataFrame) -> DataFrame:
    """Return the results as records: JSON values, and keys that a repeated batch repeats."""
    from pyspark.sql import functions as F

    # Text of a timestamp would depend on the time zone of the session.
    start = F.unix_millis("start").cast("string")
    end = F.unix_millis("end")
    fields = [F.unix_millis("start").alias("start_ms"), end.alias("end_ms")]
    fields += [F.col(name) for name in ("rank", "name", "count", "total")]
    return top.select(
        F.concat_ws("/", start, F.col("rank").cast("string")).alias("key"),
        F.to_json(F.struct(*fields)).alias("value"),
    )


def _print_windows(top: DataFrame, batch_id: int, report: Report) -> None:
    rows = top.selectExpr("string(start)", "string(end)", "rank", "name", "count", "total")
    found = rows.orderBy("start", "rank").collect()
    starts = {row[0] for row in found}
    report(f"batch {batch_id}: {counted(len(starts), 'window')} completed")
    for start, end, rank, name, count, total in found:
        if rank == 1:
            report(f"{start} to {end}: {counted(total, 'record')}")
        report(f"{rank:>4}. {name} {count:,}")
