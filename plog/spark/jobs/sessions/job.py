"""`run_sessions`: write a row for each session, when it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plog.spark.jobs.event_columns import event_text, event_time
from plog.spark.jobs.job_source import append_records
from plog.spark.jobs.progress import Report, counted, print_progress
from plog.spark.jobs.sessions.sessions_options import SessionsOptions
from plog.spark.jobs.window_query import WindowQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIME: Final = "__plog_time"


def run_sessions(
    spark: SparkSession, options: SessionsOptions, *, report: Report = print_progress
) -> None:
    """Find sessions until the query is stopped, or has read what is available.

    Raises StreamingQueryException if a batch fails.
    """

    def write(batch: DataFrame, batch_id: int) -> None:
        # The window ends after the gap, and is not shown. The rows are used up to three times.
        sessions = batch.drop("window").persist()
        try:
            report(f"batch {batch_id}: {counted(sessions.count(), 'session')} ended")
            _print_sessions(sessions, options.shown, report)
            if options.output_topic is not None:
                append_records(result_records(sessions), options.source, options.output_topic)
        finally:
            sessions.unpersist()

    query = WindowQuery("sessions", "sessions", options)
    query.run(spark, lambda events: session_rows(events, options), write, report)


def session_rows(rows: DataFrame, options: SessionsOptions) -> DataFrame:
    """Return the columns ``key``, ``start``, ``end``, ``count``, and with a page, first and last.

    ``end`` is the time of the last record. Records without a key or a time belong to no session.
    """
    from pyspark.sql import functions as F

    selected = [event_time(options.time).alias(_TIME), event_text(options.by).alias("key")]
    found = [F.min(_TIME).alias("start"), F.max(_TIME).alias("end"), F.count("*").alias("count")]
    if options.page is not None:
        selected.append(event_text(options.page).alias("page"))
        # Compared by time, then by page, so that the result does not depend on the order of rows.
        visit = F.when(F.col("page").isNotNull(), F.struct(_TIME, "page"))
        found += [
            F.min(visit).getField("page").alias("first"),
            F.max(visit).getField("page").alias("last"),
        ]
    named = rows.select(*selected).where("key IS NOT NULL")
    named = named.withWatermark(_TIME, options.watermark)
    window = F.session_window(_TIME, options.gap)
    return named.groupBy(window.alias("window"), "key").agg(*found)


def result_records(sessions: DataFrame) -> DataFrame:
    """Return sessions as records: JSON values, and keys that a repeated batch repeats."""
    from pyspark.sql import functions as F

    start, end = F.unix_millis("start"), F.unix_millis("end")
    others = [name for name in ("count", "first", "last") if name in sessions.columns]
    fields = F.struct("key", start.alias("start_ms"), end.alias("end_ms"), *others)
    return sessions.select(
        F.concat_ws("/", "key", start.cast("string")).alias("key"), F.to_json(fields).alias("value")
    )


def _print_sessions(sessions: DataFrame, most: int, report: Report) -> None:
    # Limited, because the driver collects them.
    rows = sessions.orderBy("start", "key").limit(most)
    times = ("key", "string(start)", "string(end)", "count")
    pages = [name for name in ("first", "last") if name in sessions.columns]
    for key, start, end, count, *found in rows.selectExpr(*times, *pages).collect():
        pages_text = f", {found[0]} to {found[1]}" if found else ""
        report(f"{key}: {start} to {end}, {counted(count, 'record')}{pages_text}")
