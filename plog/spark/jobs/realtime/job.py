"""`run_realtime`: count the records of each window, and write the most frequent names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plog.spark.jobs.job_source import read_stream
from plog.spark.jobs.progress import Report, counted, print_progress
from plog.spark.jobs.realtime.realtime_options import RECORD_COLUMNS, RealtimeOptions
from plog.spark.values.dead_letter_rows import dead_letters
from plog.spark.values.decoded_values import decode

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_FIELDS: Final = "__plog_fields"
_TIME: Final = "__plog_time"
_POLL_S: Final = 5


def run_realtime(
    spark: SparkSession, options: RealtimeOptions, *, report: Report = print_progress
) -> None:
    """Count until the query is stopped, or has read what is available.

    Raises StreamingQueryException if a batch fails.
    """

    def write(batch: DataFrame, batch_id: int) -> None:
        top = top_rows(batch, options.top).persist()
        if options.console:
            _print_windows(top, batch_id, report)
        if options.output_topic is not None:
            writer = result_records(top).write.format("plog").mode("append")
            writer = writer.options(**options.source.client_options())
            writer.option("topic", options.output_topic).save()
        top.unpersist()

    rows = read_stream(spark, options.source, include_headers=options.dead_letter_topic is not None)
    writer = window_counts(_decoded(rows, options), options).writeStream.outputMode("append")
    writer = options.trigger.apply(
        writer.queryName(f"plog-realtime {options.checkpoint}").foreachBatch(write)
    )
    query = writer.option("checkpointLocation", f"{options.checkpoint}/counts").start()
    letters = _start_dead_letters(rows, options)
    _await(query, letters)


def _await(query: StreamingQuery, letters: StreamingQuery | None) -> None:
    """Wait until both queries have ended; if one fails, stop the other."""
    if letters is None:
        query.awaitTermination()
        return
    both = (query, letters)
    try:
        while any(one.isActive for one in both):
            for one in both:
                # Raises the exception of a query that has failed.
                one.awaitTermination(_POLL_S)
    finally:
        for one in both:
            one.stop()


def _start_dead_letters(rows: DataFrame, options: RealtimeOptions) -> StreamingQuery | None:
    """Start a second query for values that cannot be decoded; aggregation would lose them."""
    if options.dead_letter_topic is None or options.values.name == "raw":
        return None
    writer = dead_letters(_decoded(rows, options)).writeStream.format("plog")
    writer = writer.options(**options.source.client_options())
    writer = writer.option("topic", options.dead_letter_topic)
    writer = options.trigger.apply(
        writer.queryName(f"plog-realtime-dead-letters {options.checkpoint}")
    )
    return writer.option("checkpointLocation", f"{options.checkpoint}/dead-letters").start()


def _decoded(rows: DataFrame, options: RealtimeOptions) -> DataFrame:
    values = options.values
    if values.name == "raw":
        return rows
    return decode(rows, values.name, values.schema, into=_FIELDS, options=values.options)


def window_counts(rows: DataFrame, options: RealtimeOptions) -> DataFrame:
    """Return the columns ``window``, ``name`` and ``count``; rows without a name do not count."""
    from pyspark.sql import functions as F

    named = rows.select(
        _column(options.time).cast("timestamp").alias(_TIME),
        _column(options.by).cast("string").alias("name"),
    )
    named = named.where("name IS NOT NULL").withWatermark(_TIME, options.watermark)
    window = F.window(_TIME, options.window, options.slide)
    return named.groupBy(window.alias("window"), "name").count()


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(name) if name in RECORD_COLUMNS else F.col(_FIELDS).getField(name)


def top_rows(counts: DataFrame, top: int) -> DataFrame:
    """Return the most frequent names of each window in a batch, with their rank.

    A window is complete when the watermark has passed its end. Spark then returns all of its
    counts in the same batch.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    window = Window.partitionBy("window")
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
