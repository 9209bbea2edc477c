"""`run_recommend`: find the items that users see together, in a stream or in a range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plog.spark.jobs.event_columns import decoded_events
from plog.spark.jobs.folder_owner import query_of
from plog.spark.jobs.job_source import append_records, read_range
from plog.spark.jobs.progress import Report, print_progress
from plog.spark.jobs.recommend.counts_folder import CountsFolder
from plog.spark.jobs.recommend.item_counts import window_items
from plog.spark.jobs.recommend.recommend_options import RecommendOptions
from plog.spark.jobs.recommend.similar_writer import SimilarWriter
from plog.spark.jobs.table_files import TableFiles
from plog.spark.jobs.value_format import RAW
from plog.spark.jobs.window_query import WindowQuery
from plog.spark.values.dead_letter_rows import dead_letters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANGE: Final = "range"
"""The owner of a folder with the result of a range, which another range may replace."""


def run_recommend(
    spark: SparkSession,
    options: RecommendOptions,
    *,
    report: Report = print_progress,
    files: TableFiles | None = None,
) -> None:
    """Publish the similar items of a range, or of the stream until the query is stopped.

    Raises ConfigError if another query has written the output, and StreamingQueryException if a
    batch of the stream fails.
    """
    files = files or TableFiles()
    if options.checkpoint is None:
        _run_range(spark, options, report, files)
    else:
        _run_stream(spark, options, options.checkpoint, report, files)


def _run_range(
    spark: SparkSession, options: RecommendOptions, report: Report, files: TableFiles
) -> None:
    folder = CountsFolder.opened(options.output, _RANGE, files)
    topic = options.dead_letter_topic
    rows = read_range(spark, options.source, options.times, include_headers=topic is not None)
    events = decoded_events(rows, options.values)
    if topic is not None and options.values.name != RAW:
        # The dead letters come first, because a job whose result is published does not run again.
        append_records(dead_letters(events), options.source, topic)
    SimilarWriter(options, folder, report).write_range(window_items(events, options))


def _run_stream(
    spark: SparkSession,
    options: RecommendOptions,
    checkpoint: str,
    report: Report,
    files: TableFiles,
) -> None:
    writers: list[SimilarWriter] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        if not writers:
            # The id of the query is known only while it processes a batch.
            folder = CountsFolder.opened(options.output, query_of(batch), files)
            writers.append(SimilarWriter(options, folder, report))
        writers[0].write(batch, batch_id)

    query = WindowQuery("recommend", "baskets", options)
    query.run(spark, lambda events: window_items(events, options), write, report)
